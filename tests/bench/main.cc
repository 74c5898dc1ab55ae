// concert-bench: measures concert against doing without it. See docs/benchmarks/README.md.
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/bench/child_process.h"
#include "tests/bench/overhead_suite.h"
#include "tests/bench/progress.h"
#include "tests/bench/result_file.h"
#include "tests/bench/suite.h"
#include "tests/bench/tenant_worker.h"

namespace concert::bench {
namespace {

// The public suites lie beside the programs of a bundle; a build tree uses the sources'.
std::string PublicSuite(const Suite& suite) {
  const std::filesystem::path bundled =
      std::filesystem::path(ProgramFolder()) / "../scenarios" / suite.default_scenarios;
  if (std::filesystem::exists(bundled)) return bundled.lexically_normal();
  return std::string(CONCERT_SCENARIOS "/").append(suite.default_scenarios);
}

int Fail(const absl::Status& status) {
  std::cerr << "concert-bench: " << status.ToString() << "\n";
  return 1;
}

int Run(const Suite& suite, RunOptions options, const std::string& out) {
  if (options.scenarios.empty() && !suite.default_scenarios.empty())
    options.scenarios = PublicSuite(suite);
  nlohmann::json result = NewResult(suite.name);
  const absl::Status ran = suite.run(options, result);
  // What was measured before a failure is still worth reading; a header says that it began.
  if (!result["scenarios"].empty()) {
    suite.print(result, std::cout);
    if (!out.empty()) {
      if (absl::Status written = WriteResult(result, out); !written.ok()) return Fail(written);
      std::cout << "written to " << out << "\n";
    }
  }
  return ran.ok() ? 0 : Fail(ran);
}

int Main(int argc, char** argv) {
  CLI::App app{"Measures concert against doing without it"};
  app.require_subcommand(1);
  RunOptions options;
  std::string suite_name, out, socket, ready_path;

  CLI::App* run =
      app.add_subcommand("run", "Run a suite; starts private daemons unless given --socket");
  CLI::Option* suite_option = run->add_option("--suite", suite_name, "Which suite")->required();
  std::string names;
  for (const Suite& suite : AllSuites()) names.append(names.empty() ? "" : ", ").append(suite.name);
  suite_option->type_name("NAME (" + names + ")");
  run->add_option("--scenarios", options.scenarios, "Suite file; default: the public one");
  run->add_option("--out", out, "Write the result to this JSON file");
  run->add_option("--policy", options.policy, "Policy of the private daemon")
      ->capture_default_str();
  std::vector<std::string> policies;
  run->add_option("--policies", policies,
                  "Policies to compare, each with a private daemon of its own: the first is"
                  " \"concert\" (suite gemm)")
      ->delimiter(',');
  run->add_flag("--forms", options.forms,
                "Also measure every form that concert may choose (suite gemm)");
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

  CLI::App* list = app.add_subcommand("list", "List the suites");

  CLI::App* load =
      app.add_subcommand("client-load", "")->group("");  // hidden: the overhead suite's busy client
  load->add_option("--socket", socket)->required();
  load->add_option("--ready", ready_path)->required();

  TenantOptions tenant;
  CLI::App* one =
      app.add_subcommand("tenant", "")->group("");  // hidden: the tenants suite's client
  one->add_option("--board", tenant.board)->required();
  one->add_option("--index", tenant.index)->required();
  one->add_option("--scenarios", tenant.scenarios)->required();
  one->add_option("--scenario", tenant.scenario)->required();
  one->add_option("--socket", tenant.socket);
  one->add_option("--gpu", tenant.gpu_uuid);
  CLI11_PARSE(app, argc, argv);

  if (*one) {
    const absl::Status status = RunTenant(tenant);
    return status.ok() ? 0 : Fail(status);
  }
  NoteInterrupts();
  if (!policies.empty()) {
    options.policy = policies.front();
    options.other_policies.assign(policies.begin() + 1, policies.end());
  }
  if (*list) {
    for (const Suite& suite : AllSuites()) std::cout << suite.name << ": " << suite.help << "\n";
    return 0;
  }
  if (*load) {
    const absl::Status status = RunClientLoad(socket, ready_path);
    return status.ok() ? 0 : Fail(status);
  }
  const Suite* const suite = FindSuite(suite_name);
  if (suite == nullptr) {
    return Fail(
        absl::InvalidArgumentError("--suite is '" + suite_name + "'; it must be one of: " + names));
  }
  return Run(*suite, options, out);
}

}  // namespace
}  // namespace concert::bench

int main(int argc, char** argv) { return concert::bench::Main(argc, argv); }
