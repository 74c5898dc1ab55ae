// Predicts the times of sets of GEMMs, for policies/training/fit_costs.py: JSON Lines in, JSON
// Lines out, one answer per line of input, in order.
//
//   in   {"gemms": [{"m": 64, "n": 1536, "k": 4096, "count": 8, "batch": 1, "dtype": "bf16"}],
//         "costs": {"fill_us": 0.9}, "device": {"sm_count": 132}}
//   out  {"single_us": 74.1, "streams_us": 47.0, "group_us": 26.6}
//
// "count", "batch" and "dtype" may be left out; "costs" (of CostConstants) and "device" (of
// DeviceModel) override defaults. single: one after the other; streams: all side by side; group:
// one launch behind another (GroupGoal::kThroughput), where one can carry them all. A line that
// cannot be read ends the program with a sentence and exit status 1.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/group/group_operand.h"
#include "kernels/group/plan/compiler.h"
#include "policies/cost/cost_model.h"
#include "policies/cost/tuned_table.h"

namespace concert::bench {
namespace {

using kernels::GroupCompiler;
using nlohmann::json;
using policies::CostConstants;
using policies::DeviceModel;
using policies::Dtype;
using policies::Problem;
using policies::Work;

template <typename Struct>
struct Field {
  std::string_view name;
  double Struct::*value;
};

constexpr Field<CostConstants> kCostFields[] = {
    {"fill_us", &CostConstants::fill_us},
    {"store_us_per_element", &CostConstants::store_us_per_element},
    {"sm_bytes_per_s", &CostConstants::sm_bytes_per_s},
    {"fp8_share", &CostConstants::fp8_share},
    {"hbm_efficiency", &CostConstants::hbm_efficiency},
    {"split_us", &CostConstants::split_us},
    {"hoarding", &CostConstants::hoarding},
    {"unaligned_factor", &CostConstants::unaligned_factor},
    {"issue_us", &CostConstants::issue_us},
    {"handover_us", &CostConstants::handover_us},
    {"wave_crowding", &CostConstants::wave_crowding},
};
constexpr Field<DeviceModel> kDeviceFields[] = {
    {"tensor_flops", &DeviceModel::tensor_flops},
    {"tf32_flops", &DeviceModel::tf32_flops},
    {"fp32_flops", &DeviceModel::fp32_flops},
    {"fp8_flops", &DeviceModel::fp8_flops},
    {"hbm_bytes_per_s", &DeviceModel::hbm_bytes_per_s},
    {"kernel_floor_us", &DeviceModel::kernel_floor_us},
};

template <typename Struct, size_t kCount>
absl::Status Override(const json& values, const Field<Struct> (&fields)[kCount], Struct& target) {
  for (const auto& [name, value] : values.items()) {
    const auto field = std::find_if(std::begin(fields), std::end(fields),
                                    [&](const auto& known) { return known.name == name; });
    if (field == std::end(fields)) {
      return absl::InvalidArgumentError(absl::StrCat("there is no constant named ", name));
    }
    target.*(field->value) = value.template get<double>();
  }
  return absl::OkStatus();
}

absl::StatusOr<Dtype> DtypeOf(const std::string& name) {
  if (name == "bf16") return Dtype::kBf16;
  if (name == "fp16") return Dtype::kFp16;
  if (name == "fp32") return Dtype::kFp32;
  if (name == "fp8_e4m3") return Dtype::kFp8E4m3;
  return absl::InvalidArgumentError(
      absl::StrCat("dtype ", name, " is not one of bf16, fp16, fp32, fp8_e4m3"));
}

Work WorkOf(const Problem& problem) {
  Work work{.runs_on = policies::RunsOn::kSms,
            .dtype = problem.dtype,
            .m = problem.m,
            .n = problem.n,
            .k = problem.k,
            .batch = problem.batch};
  const uint64_t m = problem.m, n = problem.n, k = problem.k, batch = problem.batch;
  work.flops = 2 * batch * m * n * k;
  const uint64_t d_bytes = problem.dtype == Dtype::kFp8E4m3 ? 2 : DtypeBytes(problem.dtype);
  work.hbm_bytes = batch * (DtypeBytes(problem.dtype) * (m * k + n * k) + d_bytes * m * n);
  return work;
}

// GEMMs written out, one problem for each.
absl::StatusOr<std::vector<Problem>> ProblemsOf(const json& gemms) {
  constexpr int kMaxCount = 4096;
  std::vector<Problem> problems;
  for (const json& gemm : gemms) {
    const absl::StatusOr<Dtype> dtype = DtypeOf(gemm.value("dtype", "bf16"));
    if (!dtype.ok()) return dtype.status();
    const int count = gemm.value("count", 1);
    if (count < 1 || count > kMaxCount) {
      return absl::InvalidArgumentError(
          absl::StrCat("count ", count, " is not between 1 and ", kMaxCount));
    }
    const Problem problem{.m = gemm.at("m"),
                          .n = gemm.at("n"),
                          .k = gemm.at("k"),
                          .batch = gemm.value("batch", 1u),
                          .dtype = *dtype};
    problems.insert(problems.end(), static_cast<size_t>(count), problem);
  }
  if (problems.empty()) return absl::InvalidArgumentError("gemms is empty");
  return problems;
}

// Keeps the compiler from one query to the next: it owns some 20 MB, and of a device it knows the
// number of SMs only.
class GroupPredictor {
 public:
  // One group launch of all problems; nothing where none can carry them.
  std::optional<double> Us(const DeviceModel& device, const std::vector<Problem>& problems);

 private:
  std::unique_ptr<GroupCompiler> compiler_;
  int sm_count_ = 0;
};

// As admission says it, of operands that tensor maps take as they lie.
bool IsGroupable(const Problem& problem) {
  kernels::GemmArgs gemm = {};
  gemm.m = problem.m, gemm.n = problem.n, gemm.k = problem.k, gemm.batch = problem.batch;
  gemm.dtype = problem.dtype;
  gemm.lda = gemm.ldw = (uint64_t{problem.k} + 15) / 16 * 16;
  return kernels::GroupRepackBytes(gemm).has_value();
}

std::optional<double> GroupPredictor::Us(const DeviceModel& device,
                                         const std::vector<Problem>& problems) {
  const bool fit = problems.size() <= kernels::kMaxGroupProblems &&
                   std::all_of(problems.begin(), problems.end(), [&](const Problem& problem) {
                     return IsGroupable(problem) && problem.dtype == problems[0].dtype;
                   });
  if (!fit) return std::nullopt;
  if (compiler_ == nullptr || device.sm_count != sm_count_) {
    compiler_ = std::make_unique<GroupCompiler>(device);
    sm_count_ = device.sm_count;
  }
  compiler_->Reclaim();
  const kernels::GroupWorkList* work_list =
      compiler_->Compile(problems, 0, policies::GroupGoal::kThroughput);
  if (work_list == nullptr) return std::nullopt;
  return work_list->predicted_us;
}

absl::StatusOr<DeviceModel> DeviceOf(const json& query) {
  DeviceModel device;
  json rates = query.value("device", json::object());
  device.sm_count = rates.value("sm_count", device.sm_count);
  rates.erase("sm_count");
  if (absl::Status status = Override(rates, kDeviceFields, device); !status.ok()) return status;
  const json costs = query.value("costs", json::object());
  if (absl::Status status = Override(costs, kCostFields, device.costs); !status.ok()) return status;
  return device;
}

// The answer to one line.
absl::StatusOr<json> Predict(const std::string& line, GroupPredictor& groups) {
  try {
    const json query = json::parse(line);
    const absl::StatusOr<DeviceModel> device = DeviceOf(query);
    if (!device.ok()) return device.status();
    const absl::StatusOr<std::vector<Problem>> problems = ProblemsOf(query.at("gemms"));
    if (!problems.ok()) return problems.status();
    policies::CoRunSet set(*device);
    for (const Problem& problem : *problems) set.Add(CostOf(*device, WorkOf(problem)));
    json answer = {{"single_us", set.SerialUs()}, {"streams_us", set.CoRunUs()}};
    if (const std::optional<double> group_us = groups.Us(*device, *problems)) {
      answer["group_us"] = *group_us;
    }
    return answer;
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

int Run() {
  GroupPredictor groups;
  std::string line;
  for (int number = 1; std::getline(std::cin, line); ++number) {
    const absl::StatusOr<json> answer = Predict(line, groups);
    if (!answer.ok()) {
      std::cerr << "predict_costs: line " << number << ": " << answer.status().message() << "\n";
      return 1;
    }
    std::cout << *answer << std::endl;  // flushed: who asks waits for it
  }
  return 0;
}

}  // namespace
}  // namespace concert::bench

int main() { return concert::bench::Run(); }
