// A suite measures one claim of concert's. A suite is one row of AllSuites() and one file pair;
// nothing else in concert-bench knows how many suites there are.
#ifndef CONCERT_TESTS_BENCH_SUITE_H_
#define CONCERT_TESTS_BENCH_SUITE_H_

#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace concert::bench {

struct RunOptions {
  std::string scenarios;  // suite file; empty where the suite has none
  std::string filter;     // of scenario names; empty: all
  std::string policy = "auto";
  std::vector<std::string> other_policies;  // measured beside it, where the suite compares policies
  bool forms = false;                       // also measure every form that a policy may choose
  bool torch = true;                        // measure PyTorch beside it, where a suite does
  std::string python = "python3";           // that has it: a program or its name
  std::string device = "auto";
  std::string config;  // configuration file of private daemons; empty: the built-in defaults
  std::string socket;  // of a running daemon; empty: private daemons
  int rounds = 40;
  // Called with all that there is of the result whenever a scenario has been measured.
  std::function<void(const nlohmann::json& result)> keep = [](const nlohmann::json&) {};
};

struct Suite {
  std::string_view name;
  std::string_view help;
  std::string_view
      default_scenarios;  // file name among the public suites; empty: the suite takes none
  // Fills in header, scenarios and summary of `result`. An error may leave finished scenarios in
  // it.
  absl::Status (*run)(const RunOptions& options, nlohmann::json& result);
  // Prints `result` for a reader.
  void (*print)(const nlohmann::json& result, std::ostream& out);
};

std::span<const Suite> AllSuites();

// Null for an unknown name.
const Suite* FindSuite(std::string_view name);

}  // namespace concert::bench

#endif  // CONCERT_TESTS_BENCH_SUITE_H_
