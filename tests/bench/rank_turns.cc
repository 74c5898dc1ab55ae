#include "tests/bench/rank_turns.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace concert::bench {
namespace {

constexpr uint32_t kOrderSeed = 20260104;

absl::Status TakeTurn(RankCrew& crew, const RankTurn& turn) {
  const auto runs = crew.Run(turn.contender, turn.gemms, turn.collective, turn.lead_in + turn.runs);
  if (!runs.ok()) return runs.status();
  for (size_t i = turn.lead_in; i < runs->size(); ++i) turn.add((*runs)[i]);
  return absl::OkStatus();
}

}  // namespace

absl::Status TakeRankTurns(RankCrew& crew, const std::vector<RankTurn>& turns, int rounds) {
  std::vector<size_t> order(turns.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(kOrderSeed);
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t who : order) {
      if (round % turns[who].every != 0) continue;
      if (absl::Status taken = TakeTurn(crew, turns[who]); !taken.ok()) return taken;
    }
  }
  return absl::OkStatus();
}

}  // namespace concert::bench
