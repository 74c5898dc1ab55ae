#include "daemon/quota/budget.h"

namespace concert::daemon {
namespace {

constexpr bool RowsStandInTheOrderOfTheEnumerators() {
  for (size_t i = 0; i < kBudgets.size(); ++i) {
    if (kBudgets[i].work != static_cast<Work>(i) || kBudgets[i].per_turn == 0) return false;
  }
  return true;
}
static_assert(RowsStandInTheOrderOfTheEnumerators());
static_assert(PerTurn(Work::kRequestsOfSession) <= PerTurn(Work::kRequests));
static_assert(PerTurn(Work::kOpsOfRing) <= PerTurn(Work::kOps));

}  // namespace

std::string RenderBudgets() {
  std::string out =
      "| Thread | Of | Per turn |\n"
      "|---|---|---|\n";
  for (const Budget& budget : kBudgets) {
    out += "| " + std::string(budget.thread) + " | " + std::string(budget.name) + " | " +
           std::to_string(budget.per_turn) + " |\n";
  }
  return out;
}

}  // namespace concert::daemon
