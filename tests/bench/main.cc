// concert-bench: measures concert against doing without it. See docs/benchmarks/README.md.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "proto/command/build.h"
#include "proto/command/mistakes.h"
#include "proto/command/pages.h"
#include "proto/command/words.h"
#include "tests/bench/child_process.h"
#include "tests/bench/compare_results.h"
#include "tests/bench/model_tenants.h"
#include "tests/bench/overhead_suite.h"
#include "tests/bench/print_result.h"
#include "tests/bench/progress.h"
#include "tests/bench/rank_worker.h"
#include "tests/bench/result_file.h"
#include "tests/bench/suite.h"
#include "tests/bench/tenant_worker.h"

namespace concert::bench {
namespace {

// The public suites lie beside the programs of a bundle or below their prefix; a build tree uses
// the sources'.
std::string PublicSuite(std::string_view file) {
  for (const char* folder : {"../scenarios", "../share/concert/scenarios"}) {
    const std::filesystem::path shipped = std::filesystem::path(ProgramFolder()) / folder / file;
    if (std::filesystem::exists(shipped)) return shipped.lexically_normal();
  }
  return std::string(CONCERT_SCENARIOS "/").append(file);
}

int Fail(const absl::Status& status) {
  std::cerr << "concert-bench: " << status.ToString() << "\n";
  return 1;
}

int Exit(const absl::Status& status) { return status.ok() ? 0 : Fail(status); }

std::string SuiteNames() {
  std::string names;
  for (const Suite& suite : AllSuites()) names.append(names.empty() ? "" : ", ").append(suite.name);
  return names;
}

// What the command line says.
struct CommandLine {
  RunOptions options;
  std::string baselines = "torch";
  std::string suite, out;
  std::vector<std::string> policies;
  std::string load_socket, load_ready_path;
  TenantOptions tenant;
  RankOptions rank;
  std::string old_result, new_result;
  bool as_json = false;
  ModelOptions model;
};

void AddRun(CLI::App& app, CommandLine& line) {
  RunOptions& options = line.options;
  CLI::App* run =
      app.add_subcommand("run", "Run a suite; starts private daemons unless given --socket");
  run->add_option("--suite", line.suite, "Which suite")
      ->required()
      ->type_name("NAME (" + SuiteNames() + ")");
  run->add_option("--scenarios", options.scenarios, "Suite file; default: the public one");
  run->add_option("--out", line.out, "Write the result to this JSON file");
  run->add_option("--policy", options.policy, "Policy of the private daemon")
      ->capture_default_str();
  run->add_option("--policies", line.policies,
                  "Policies to compare, each with a private daemon of its own: the first is"
                  " \"concert\" (suite gemm)")
      ->delimiter(',');
  run->add_flag("--forms", options.forms,
                "Also measure every form that concert may choose (suites gemm and c3)");
  run->add_option("--baselines", line.baselines,
                  "Libraries to compare with, torch or none (suite steps)")
      ->check(CLI::IsMember({"torch", "none"}))
      ->capture_default_str();
  run->add_option("--python", options.python, "Python that has PyTorch (suite steps)")
      ->capture_default_str();
  run->add_option("--device", options.device, "Device of the private daemon: auto, cuda or sim")
      ->capture_default_str();
  run->add_option("--config", options.config,
                  "Configuration file of private daemons; default: none, not even the machine's")
      ->check(CLI::ExistingFile);
  run->add_option("--filter", options.filter,
                  "Only scenarios whose name this regular expression finds");
  run->add_option("--rounds", options.rounds, "Turns of every contender")
      ->check(CLI::Range(2, 10000))
      ->capture_default_str();
  run->add_option("--socket", options.socket, "Measure the daemon that listens here");
}

CLI::App* AddCompare(CLI::App& app, CommandLine& line) {
  CLI::App* compare =
      app.add_subcommand("compare", "Say what changed between two results of one suite");
  compare->add_option("OLD", line.old_result, "Result file of before")->required();
  compare->add_option("NEW", line.new_result, "Result file of now")->required();
  compare->add_flag("--json", line.as_json, "Print JSON");
  return compare;
}

CLI::App* AddModel(CLI::App& app, CommandLine& line) {
  ModelOptions& options = line.model;
  CLI::App* model = app.add_subcommand(
      "model", "Say what policies would make of clients on a modelled H200, without a GPU");
  model
      ->add_option("--scenarios", options.scenarios,
                   "A file of suite tenants; default: four servers and a chat")
      ->check(CLI::ExistingFile);
  model->add_option("--filter", options.filter,
                    "Only scenarios whose name this regular expression finds");
  model->add_option("--policies", options.policies, "Compared with the first")
      ->delimiter(',')
      ->capture_default_str();
  model->add_option("--run-time-ms", options.run_time_ms, "Of the model")
      ->check(CLI::Range(1.0, 10'000.0))
      ->capture_default_str();
  return model;
}

absl::Status Compare(const CommandLine& line) {
  const absl::StatusOr<nlohmann::json> was = ReadResult(line.old_result);
  if (!was.ok()) return was.status();
  const absl::StatusOr<nlohmann::json> is = ReadResult(line.new_result);
  if (!is.ok()) return is.status();
  const absl::StatusOr<nlohmann::json> comparison = CompareResults(*was, *is);
  if (!comparison.ok()) return comparison.status();
  if (line.as_json) {
    std::cout << comparison->dump(1) << "\n";
  } else {
    PrintChanges(*comparison, std::cout);
  }
  return absl::OkStatus();
}

// Hidden: the overhead suite's busy client.
CLI::App* AddClientLoad(CLI::App& app, CommandLine& line) {
  CLI::App* load = app.add_subcommand("client-load", "")->group("");
  load->add_option("--socket", line.load_socket)->required();
  load->add_option("--ready", line.load_ready_path)->required();
  return load;
}

// Hidden: clients of the suites tenants and steps.
CLI::App* AddTenant(CLI::App& app, CommandLine& line) {
  CLI::App* tenant = app.add_subcommand("tenant", "")->group("");
  tenant->add_option("--suite", line.tenant.suite)->required();
  tenant->add_option("--board", line.tenant.board)->required();
  tenant->add_option("--index", line.tenant.index)->required();
  tenant->add_option("--clients", line.tenant.clients)->required();
  tenant->add_option("--scenarios", line.tenant.scenarios)->required();
  tenant->add_option("--scenario", line.tenant.scenario)->required();
  tenant->add_option("--form", line.tenant.form);
  tenant->add_option("--python", line.tenant.python);
  tenant->add_option("--socket", line.tenant.socket);
  tenant->add_option("--gpu", line.tenant.gpu_uuid);
  return tenant;
}

// Hidden: a rank of the suites c3 and collectives.
CLI::App* AddRank(CLI::App& app, CommandLine& line) {
  RankOptions& options = line.rank;
  CLI::App* rank = app.add_subcommand("rank", "")->group("");
  rank->add_option("--board", options.board)->required();
  rank->add_option("--rank", options.rank)->required();
  rank->add_option("--gpu", options.gpu_uuid)->required();
  rank->add_option("--contender", options.contenders)->required();
  rank->add_option("--gemm-bytes", options.sizes.gemm)->required();
  rank->add_option("--source-bytes", options.sizes.source)->required();
  rank->add_option("--output-bytes", options.sizes.output)->required();
  return rank;
}

int Run(CommandLine line) {
  const Suite* const suite = FindSuite(line.suite);
  if (suite == nullptr) {
    std::vector<std::string> names;
    for (const Suite& known : AllSuites()) names.emplace_back(known.name);
    return Fail(absl::InvalidArgumentError("--suite is '" + line.suite + "'; it must be one of: " +
                                           SuiteNames() + command::DidYouMean(line.suite, names)));
  }
  RunOptions& options = line.options;
  options.torch = line.baselines == "torch";
  if (!line.policies.empty()) {
    options.policy = line.policies.front();
    options.other_policies.assign(line.policies.begin() + 1, line.policies.end());
  }
  if (options.scenarios.empty() && !suite->default_scenarios.empty())
    options.scenarios = PublicSuite(suite->default_scenarios);
  nlohmann::json result = NewResult(suite->name);
  absl::Status written = line.out.empty() ? absl::OkStatus() : CheckWritable(line.out);
  if (!written.ok()) return Fail(written);
  const auto start = std::chrono::steady_clock::now();
  // After each scenario: who is killed, or runs out of time, keeps what was measured.
  options.keep = [&](const nlohmann::json& so_far) {
    result = so_far;
    const auto took = std::chrono::steady_clock::now() - start;
    result["header"]["wall_s"] = took / std::chrono::seconds(1);
    if (IsQuickLook(result)) result["header"]["quick_look"] = true;
    if (!line.out.empty()) written = WriteResult(result, line.out);
  };
  nlohmann::json measured = NewResult(suite->name);
  const absl::Status ran = suite->run(options, measured);
  // What was measured before a failure is still worth reading.
  if (!measured["scenarios"].empty()) {
    options.keep(measured);
    PrintCaveats(result, std::cout);
    suite->print(result, std::cout);
    if (!written.ok()) return Fail(written);
    if (!line.out.empty()) std::cout << "written to " << line.out << "\n";
  }
  return Exit(ran);
}

// An exit status if there is nothing to run.
std::optional<int> Parse(CLI::App& app, int argc, char** argv) {
  std::vector<std::string> errors;
  try {
    app.parse(argc, argv);
    errors = command::MisspeltVariables(environ, command::ClientVariables());
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    errors = command::ExplainParseError(app, error);
  }
  for (const std::string& line : errors) std::cerr << "concert-bench: " << line << "\n";
  return errors.empty() ? std::nullopt : std::optional(2);
}

int Main(int argc, char** argv) {
  CLI::App app{"Measures concert against doing without it", "concert-bench"};
  app.set_version_flag("--version", command::VersionLine("concert-bench"));
  app.require_subcommand(1);
  CommandLine line;
  AddRun(app, line);
  const CLI::App* const list = app.add_subcommand("list", "List the suites");
  const CLI::App* const compare = AddCompare(app, line);
  const CLI::App* const model = AddModel(app, line);
  const CLI::App* const load = AddClientLoad(app, line);
  const CLI::App* const tenant = AddTenant(app, line);
  const CLI::App* const rank = AddRank(app, line);
  command::AddPages(app, {.section = 1, .sections = {{"See also", "concertd(8), concertctl(1)"}}});
  if (const std::optional<int> exit = Parse(app, argc, argv)) return *exit;

  // Not noting interrupts: the suite ends this process.
  if (*tenant) return Exit(RunTenant(line.tenant));
  if (*rank) return Exit(RunRank(line.rank));
  NoteInterrupts();
  if (*load) return Exit(RunClientLoad(line.load_socket, line.load_ready_path));
  if (*compare) return Exit(Compare(line));
  if (*model) {
    if (line.model.scenarios.empty()) line.model.scenarios = PublicSuite("demo.json");
    return Exit(RunModel(line.model, std::cout));
  }
  if (*list) {
    for (const Suite& suite : AllSuites()) std::cout << suite.name << ": " << suite.help << "\n";
    return 0;
  }
  return Run(std::move(line));
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) { return concert::bench::Main(argc, argv); }
