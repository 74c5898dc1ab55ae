#include "tests/bench/rank_contender.h"

#include "absl/strings/str_cat.h"

namespace concert::bench {

bool Carries(const RankContender& contender, CollectiveKind kind) {
  const bool reduces = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
  if (contender.transport == "ce") return !reduces;
  if (contender.way == "conccl")  // NCCL's copy engines
    return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll;
  if (contender.transport == "hybrid") return kind == CollectiveKind::kAllReduce;
  return true;
}

std::vector<C3Member> C3Baselines(bool by_policies) {
  using enum C3Member::Role;
  if (by_policies) {
    return {{{.name = "serial", .policy = "serial", .transport = "nccl"}, kBaseline, true, true},
            {{.name = "streams", .policy = "streams", .transport = "nccl"}, kBaseline},
            {{.name = "priority", .policy = "priority", .transport = "nccl"}, kBaseline},
            {{.name = "conccl", .policy = "conccl", .transport = "ce"}, kBaseline, false, true}};
  }
  return {{{.name = "serial", .way = "serial"}, kBaseline, true, true},
          {{.name = "streams", .way = "streams"}, kBaseline},
          {{.name = "priority", .way = "priority"}, kBaseline},
          {{.name = "conccl", .way = "conccl"}, kBaseline, false, true}};
}

std::vector<C3Member> C3Forms() {
  using enum C3Member::Role;
  std::vector<C3Member> forms = {
      {{.name = "form_serial", .policy = "serial"}},
      {{.name = "form_ce", .policy = "priority", .transport = "ce"}, kForm, false, true},
      {{.name = "form_nccl", .policy = "priority", .transport = "nccl"}},
      {{.name = "form_p2p8_priority", .policy = "priority", .transport = "p2p", .sms = 8}}};
  const auto split = [&](const std::string& transport, int sms) {
    forms.push_back({{.name = absl::StrCat("form_", transport, sms),
                      .policy = "static_split",
                      .transport = transport,
                      .sms = sms},
                     kForm,
                     false,
                     true});
  };
  for (const int sms : {4, 8, 12, 16}) split("p2p", sms);
  for (const int sms : {4, 8}) split("hybrid", sms);
  return forms;
}

}  // namespace concert::bench
