#include "proto/command/words.h"

#include <algorithm>

namespace concert::command {
namespace {

constexpr std::string_view kPrefix = "CONCERT_";
constexpr size_t kLongestWord = 64;

// The nearest candidate; null if none is as near as `limit`.
const std::string* Nearest(std::string_view word, const std::vector<std::string>& candidates,
                           size_t limit) {
  if (word.size() > kLongestWord) return nullptr;
  const std::string* nearest = nullptr;
  size_t least = limit + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    // What shares no letter with a candidate is not a slip.
    if (distance >= least || distance >= std::max(word.size(), candidate.size())) continue;
    least = distance;
    nearest = &candidate;
  }
  return nearest;
}

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  // Rows of the usual table: two before, before and this one.
  std::vector<size_t> older(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    older.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], older[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates) {
  // Of three letters one may be wrong, of five two.
  const size_t limit = std::max<size_t>(1, (word.size() + 1) / 3);
  const std::string* const nearest = Nearest(word, candidates, limit);
  return nearest == nullptr ? "" : "; did you mean '" + *nearest + "'?";
}

std::vector<std::string> ClientVariables() {
  return {"CONCERT_SOCKET", "CONCERT_ADMIN_SOCKET", "CONCERT_FALLBACK", "CONCERT_BATCHES"};
}

std::vector<std::string> MisspeltVariables(const char* const* environment,
                                           const std::vector<std::string>& known) {
  std::vector<std::string> suffixes;
  for (const std::string& name : known) {
    if (name.starts_with(kPrefix)) suffixes.push_back(name.substr(kPrefix.size()));
  }
  std::vector<std::string> sentences;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    if (!entry.starts_with(kPrefix)) continue;
    const std::string name(entry.substr(0, entry.find('=')));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    // It stops a program, so it must be a slip: other programs and scripts have variables of their
    // own, as .ci/run has CONCERT_CI_BUDGET_S, which is not far from concertd's tune_budget_s.
    const std::string suffix = name.substr(kPrefix.size());
    const size_t limit = std::clamp<size_t>(suffix.size() / 4, 1, 2);
    const std::string* const nearest = Nearest(suffix, suffixes, limit);
    if (nearest == nullptr) continue;
    sentences.push_back("unknown environment variable '" + name + "'; did you mean '" +
                        std::string(kPrefix) + *nearest + "'?");
  }
  return sentences;
}

}  // namespace concert::command
