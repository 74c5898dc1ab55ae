#include "tests/bench/collectives_result.h"

#include <algorithm>

#include "tests/bench/result_file.h"

namespace concert::bench {
namespace {

using nlohmann::json;

constexpr double kLinkBytesPerUs = 450e3;  // NVLink 4: 18 links of 25 GB/s per direction
constexpr uint64_t kSmallBytes = 64 << 10;

json SpreadsOf(const Samples& samples) {
  json spreads = json::object();
  for (const auto& [name, samples_us] : samples) {
    if (!samples_us.empty()) spreads[name] = Spread(samples_us);
  }
  return spreads;
}

// 10^9 bytes a second of each contender's median.
json BandwidthsOf(const json& spreads, double bytes) {
  json bandwidths = json::object();
  for (const auto& [name, spread] : spreads.items())
    bandwidths[name] = bytes / spread["p50"].get<double>() / 1e3;
  return bandwidths;
}

const Rivals& Nccl() {
  static const Rivals rivals = {.baselines = {"nccl"}, .policies = {}};
  return rivals;
}

// The contenders held to 8 SMs, by the names that others have.
json EightSms(const json& times_us) {
  json renamed = json::object();
  if (times_us.contains("concert_8_sms")) renamed["concert"] = times_us["concert_8_sms"];
  if (times_us.contains("nccl_8_ctas")) renamed["nccl"] = times_us["nccl_8_ctas"];
  return renamed;
}

// Of the scenarios for which `times_of` gives times.
template <typename TimesOf>
json SpeedupOfNccl(const json& scenarios, const TimesOf& times_of) {
  json renamed = json::array();
  for (const json& scenario : scenarios) {
    const json times_us = times_of(scenario);
    if (times_us.contains("concert") && times_us.contains("nccl"))
      renamed.push_back({{"name", scenario["name"]}, {"times_us", times_us}});
  }
  const json summary = SpeedupSummary(renamed, Nccl(), /*tolerance=*/0);
  return summary.value("speedup_over", json::object()).value("nccl", json());
}

}  // namespace

json DescribeCollective(const std::string& name, const CollectiveShape& shape,
                        const CollectiveSamples& samples, double memory_bytes_per_s) {
  const auto bytes = static_cast<double>(shape.bytes);
  const json alone = SpreadsOf(samples.alone), beside = SpreadsOf(samples.beside);
  json entry = {{"name", name},
                {"class", KindName(shape.kind)},
                {"kind", KindName(shape.kind)},
                {"bytes", shape.bytes},
                {"gpus", shape.ranks},
                {"times_us", alone},
                {"beside_us", beside},
                {"gemms_beside_us", SpreadsOf(samples.gemms_beside)},
                {"both_us", SpreadsOf(samples.both)},
                {"algbw_gb_per_s", BandwidthsOf(alone, bytes)},
                {"busbw_gb_per_s", BandwidthsOf(alone, shape.bus_factor() * bytes)},
                {"beside_busbw_gb_per_s", BandwidthsOf(beside, shape.bus_factor() * bytes)},
                {"bound_us", std::max(shape.bus_factor() * bytes / kLinkBytesPerUs,
                                      1e6 * shape.hbm_bytes() / memory_bytes_per_s)},
                {"speedup_over", SpeedupOver(alone, Nccl())},
                {"beside_speedup_over", SpeedupOver(beside, Nccl())}};
  const json eight = SpeedupOver(EightSms(alone), Nccl());
  if (eight.contains("nccl")) entry["speedup_8_sms"] = eight["nccl"];
  return entry;
}

json CollectivesSummary(const json& scenarios, double tolerance) {
  json summary = SpeedupSummary(scenarios, Nccl(), tolerance);
  const auto add = [&](const char* key, const json& speedup) {
    if (!speedup.is_null()) summary[key] = speedup;
  };
  add("beside", SpeedupOfNccl(scenarios, [](const json& entry) { return entry["beside_us"]; }));
  add("eight_sms",
      SpeedupOfNccl(scenarios, [](const json& entry) { return EightSms(entry["times_us"]); }));
  add("small", SpeedupOfNccl(scenarios, [](const json& entry) {
        return entry["bytes"] <= kSmallBytes ? entry["times_us"] : json::object();
      }));
  return summary;
}

}  // namespace concert::bench
