#include "client/ctl/concertctl.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>

#include "client/ctl/connection.h"
#include "client/ctl/json.h"
#include "client/ctl/live.h"
#include "client/ctl/render.h"
#include "client/ctl/trace.h"
#include "client/ctl/tune.h"
#include "proto/command/mistakes.h"
#include "proto/command/pages.h"
#include "proto/command/words.h"

namespace concert::ctl {
namespace {

constexpr char kDefaultSocket[] = "/run/concert/admin.sock";
constexpr std::chrono::milliseconds kDrainPoll(50);

struct Options {
  std::string socket = kDefaultSocket;
  uint32_t timeout_ms = 5000;
  bool json = false;
  uint32_t plan_count = 20;
  bool program_stages = false;
  uint32_t drain_seconds = 0;
  uint32_t drain_wait_seconds = 0;  // for the daemon to be gone; 0: not at all
  std::string policy;
  LiveOptions live;
  TraceOptions trace;
  TuneOptions tune;
};

// The parsed command line's command, given a connection.
using Command = std::function<grpc::Status(Connection&, const Options&, std::ostream&)>;

// A command that makes one call and prints its answer, as JSON or by `render`; `judge` sees it,
// too.
template <typename Request, typename Response, typename Render>
Command Show(grpc::Status (Connection::Stub::*method)(grpc::ClientContext*, const Request&,
                                                      Response*),
             Render render,
             std::type_identity_t<std::function<void(const Options&, Request&)>> fill = nullptr,
             std::type_identity_t<std::function<void(const Response&)>> judge = nullptr) {
  return [=](Connection& connection, const Options& options, std::ostream& out) {
    Request request;
    if (fill != nullptr) fill(options, request);
    Response response;
    grpc::Status status = connection.Call(method, request, &response);
    if (!status.ok()) return status;
    if (judge != nullptr) judge(response);
    if (options.json) {
      out << ToJson(response).dump(2) << "\n";
    } else {
      out << render(response);
    }
    return status;
  };
}

command::Manual Manual() {
  return {.section = 1,
          .sections = {{"Exit status",
                        "0 done, 1 refused, no answer in time or output that was lost, 2 wrong "
                        "usage, 3 no daemon, 4 `status` "
                        "of a daemon that does less than it should."},
                       {"See also", "concertd(8), concert.toml(5)"}}};
}

// gRPC wraps the cause ("No such file or directory") in several layers that end with ": ".
std::string LastClause(const std::string& message) {
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

// Clients' sockets are of another type than the admin socket, and easily taken for it.
std::string HintOnSocket(const grpc::Status& status) {
  if (LastClause(status.error_message()) != std::strerror(EPROTOTYPE)) return "";
  return "; that is the socket of clients, give the daemon's admin_socket"
         " (--socket, CONCERT_ADMIN_SOCKET)";
}

// Until no daemon that drains answers any more.
grpc::Status AwaitEnd(Connection& connection, uint32_t seconds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (;;) {
    v1::GetStatusResponse response;
    const grpc::Status status =
        connection.Call(&Connection::Stub::GetStatus, v1::GetStatusRequest(), &response);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return grpc::Status::OK;
    // The next one, started by whoever watches over it.
    if (status.ok() && response.state() != v1::DAEMON_STATE_DRAINING) return grpc::Status::OK;
    if (std::chrono::steady_clock::now() > limit) {
      return {grpc::StatusCode::FAILED_PRECONDITION,
              "the daemon still drains after " + std::to_string(seconds) + " s (--wait-s)"};
    }
    std::this_thread::sleep_for(kDrainPoll);
  }
}

class App {
 public:
  explicit App(const std::string& version) {
    app_.set_version_flag("--version", version);
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.add_option("--socket", options_.socket, "Admin socket of the daemon")
        ->envname("CONCERT_ADMIN_SOCKET")
        ->capture_default_str();
    app_.add_option("--timeout-ms", options_.timeout_ms, "How long to wait for an answer")
        ->check(CLI::Range(1, 3'600'000))
        ->capture_default_str();
    app_.add_flag("--json", options_.json, "Print JSON: raw numbers, units in the names");
    AddLists();
    AddPolicy();
    AddDrain();
    AddLive();
    AddTrace();
    AddTune();
    command::AddPages(app_, Manual());
  }

  int Run(int argc, const char* const* argv, std::ostream& out, std::ostream& err, bool terminal) {
    const int code = RunCommand(argc, argv, out, err, terminal);
    // Who reads it, or the file that it went to, lacks what was printed.
    errno = 0;
    if (out.flush()) return code;
    err << "concertctl: cannot write standard output";
    if (errno != 0) err << ": " << std::strerror(errno);
    err << "\n";
    return code == kExitOk ? kExitFailed : code;
  }

 private:
  int RunCommand(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                 bool terminal) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::Success& help) {
      app_.exit(help, out, err);
      return kExitOk;
    } catch (const CLI::ParseError& error) {
      for (const std::string& line : command::ExplainParseError(app_, error))
        err << "concertctl: " << line << "\n";
      return kExitUsage;
    }
    const auto misspelt = command::MisspeltVariables(environ, command::ClientVariables());
    for (const std::string& line : misspelt) err << "concertctl: " << line << "\n";
    if (!misspelt.empty()) return kExitUsage;
    options_.live.json = options_.json;
    options_.live.terminal = terminal;
    options_.trace.json = options_.json;
    options_.tune.json = options_.json;
    options_.tune.terminal = terminal;
    options_.tune.socket = options_.socket;
    options_.tune.timeout = std::chrono::milliseconds(options_.timeout_ms);
    Connection connection(options_.socket, std::chrono::milliseconds(options_.timeout_ms));
    const int code = Report(command_(connection, options_, out), err);
    return code == kExitOk ? exit_code_ : code;
  }

  void Add(CLI::App& parent, const char* name, const char* help, Command command) {
    parent.add_subcommand(name, help)->callback([this, command = std::move(command)] {
      command_ = command;
    });
  }

  void AddLists() {
    Add(app_, "status", "What the daemon is and whether it accepts work",
        Show(&Connection::Stub::GetStatus, RenderStatus, nullptr,
             [this](const v1::GetStatusResponse& response) {
               if (!response.degraded().empty()) exit_code_ = kExitDegraded;
             }));
    Add(app_, "devices", "The GPUs of this node",
        Show(&Connection::Stub::ListDevices, RenderDevices));
    Add(app_, "sessions", "The connected clients",
        Show(&Connection::Stub::ListSessions, RenderSessions));
    Add(app_, "programs", "What clients have registered to run as one op each",
        Show(&Connection::Stub::ListSessions, RenderPrograms,
             std::function([](const Options& options, v1::ListSessionsRequest& request) {
               request.set_with_program_parts(options.program_stages);
             })));
    app_.get_subcommand("programs")
        ->add_flag("--stages", options_.program_stages,
                   "What follows one another in each, and what that is predicted to take");
    Add(app_, "stats", "Totals since the daemon started, by GPU, kind of op and session",
        Show(&Connection::Stub::GetStats,
             [](const v1::GetStatsResponse& response) { return RenderStats(response.stats()); }));
    Add(app_, "quotas", "What clients may hold, what they hold, and who holds most",
        Show(&Connection::Stub::GetQuotas, RenderQuotas));
    Add(app_, "collectives", "Which collectives wait for which ranks, and which run",
        Show(&Connection::Stub::GetCollectives, RenderCollectives));
    Add(app_, "plans", "What ran together lately, and why",
        Show(&Connection::Stub::ListPlans, RenderPlans,
             std::function([](const Options& options, v1::ListPlansRequest& request) {
               request.set_max_plan_count(options.plan_count);
             })));
    app_.get_subcommand("plans")
        ->add_option("-n,--last", options_.plan_count, "How many plans, newest first")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
  }

  void AddPolicy() {
    CLI::App* policy = app_.add_subcommand("policy", "Get, set or list scheduling policies");
    policy->require_subcommand(1);
    policy->fallthrough();
    Add(*policy, "get", "The policy in use",
        Show(&Connection::Stub::GetPolicy,
             [](const v1::GetPolicyResponse& response) { return response.policy() + "\n"; }));
    Add(*policy, "list", "All policies; * marks the one in use",
        Show(&Connection::Stub::ListPolicies, RenderPolicies));
    const auto fill = [](const Options& options, v1::SetPolicyRequest& request) {
      request.set_policy(options.policy);
    };
    Add(*policy, "set", "Use another policy from the next decision on",
        Show(
            &Connection::Stub::SetPolicy,
            [this](const v1::SetPolicyResponse& response) {
              return "policy " + options_.policy + " (was " + response.previous_policy() + ")\n";
            },
            std::function<void(const Options&, v1::SetPolicyRequest&)>(fill)));
    policy->get_subcommand("set")
        ->add_option("NAME", options_.policy, "Name of the policy")
        ->required();
  }

  void AddDrain() {
    const auto fill = [](const Options& options, v1::DrainRequest& request) {
      request.set_timeout_seconds(options.drain_seconds);
    };
    const Command begin = Show(
        &Connection::Stub::Drain,
        [](const v1::DrainResponse&) { return std::string("draining\n"); },
        std::function<void(const Options&, v1::DrainRequest&)>(fill));
    Add(app_, "drain",
        "Tell the daemon to accept no new ops, finish the accepted ones and then exit",
        [begin](Connection& connection, const Options& options, std::ostream& out) {
          const grpc::Status begun = begin(connection, options, out);
          if (!begun.ok() || options.drain_wait_seconds == 0) return begun;
          return AwaitEnd(connection, options.drain_wait_seconds);
        });
    CLI::App* drain = app_.get_subcommand("drain");
    drain
        ->add_option(
            "--drain-s", options_.drain_seconds,
            "Seconds until unfinished ops complete with a status (default: the daemon's drain_s)")
        ->check(CLI::Range(1, 3600));
    drain
        ->add_option("--wait-s", options_.drain_wait_seconds,
                     "Seconds to wait until it answers no more; beyond them exit with 1 (default:"
                     " do not wait)")
        ->check(CLI::Range(1, 7200));
  }

  void AddLive() {
    Add(app_, "watch", "One line of rates per interval",
        [](Connection& connection, const Options& options, std::ostream& out) {
          return Watch(connection, options.live, out);
        });
    Add(app_, "top",
        "GPUs and sessions, live: bars, history, keys to sort and filter (? lists them)",
        [](Connection& connection, const Options& options, std::ostream& out) {
          return Top(connection, options.live, out);
        });
    for (const char* name : {"watch", "top"}) {
      CLI::App* command = app_.get_subcommand(name);
      command->add_option("-i,--interval-ms", options_.live.interval_ms, "Interval")
          ->check(CLI::Range(50, 3'600'000))
          ->capture_default_str();
      command
          ->add_option("-n,--count", options_.live.count, "Intervals to show; 0: until interrupted")
          ->capture_default_str();
    }
  }

  void AddTrace() {
    Add(app_, "trace", "Record ops, launches and plans for ui.perfetto.dev",
        [](Connection& connection, const Options& options, std::ostream& out) {
          return Trace(connection, options.trace, out);
        });
    CLI::App* trace = app_.get_subcommand("trace");
    trace->fallthrough();
    CLI::App* html = trace->add_subcommand("html", "The same as a page that needs no network");
    html->callback([this] { options_.trace.page = true; });  // and then what `trace` does
    CLI::Option* recorded = html->add_option("FILE", options_.trace.recorded,
                                             "A recorded .pftrace (default: record one now)");
    for (CLI::App* command : {trace, html}) {
      CLI::Option* seconds =
          command->add_option("--seconds", options_.trace.seconds, "How long to record")
              ->check(CLI::Range(1, 60))
              ->capture_default_str();
      if (command == html) recorded->excludes(seconds);
      command->add_option("--out", options_.trace.file,
                          command == html
                              ? "File to write (default: FILE with .html, else concert.html)"
                              : "File to write (default: concert.pftrace)");
    }
  }

  CLI::App* AddTuneCommand(CLI::App& tune, const char* name, const char* help,
                           grpc::Status (*command)(const TuneOptions&, std::ostream&)) {
    Add(tune, name, help, RunOf(command));
    return tune.get_subcommand(name);
  }
  static Command RunOf(grpc::Status (*command)(const TuneOptions&, std::ostream&)) {
    return [command](Connection&, const Options& options, std::ostream& out) {
      return command(options.tune, out);
    };
  }

  void AddTune() {
    CLI::App* tune =
        app_.add_subcommand("tune", "Measure GEMM kernels and collectives, and keep the results");
    tune->fallthrough();
    TuneOptions& options = options_.tune;
    tune->add_flag("--collectives", options.collectives,
                   "Measure collectives between all GPUs, alone and beside GEMMs");
    tune->callback([this, tune, &options] {
      const bool alone = tune->get_subcommands().empty();
      if (alone && !options.collectives) throw CLI::RequiredError::Subcommand(1);
      if (!alone && options.collectives) throw CLI::ExcludesError("--collectives", "a command");
      if (alone) command_ = RunOf(TuneRun);
    });

    CLI::App* run = AddTuneCommand(*tune, "run", "Measure problems on an idle GPU", TuneRun);
    CLI::Option_group* problems = run->add_option_group("problems");
    problems->add_option("--scenarios", options.scenarios, "Scenario file of the GEMM suite");
    problems->add_option("--shapes", options.shapes, "JSON list of {m, n, k, batch, dtype, count}");
    problems->add_option("--trace", options.trace,
                         "JSON Lines of the same objects, as a server may record (not a file of "
                         "`concertctl trace`)");
    problems->require_option(1);
    run->add_flag("--force", options.force, "Measure again what has been measured");

    AddTuneCommand(*tune, "status", "The store and what is being measured", TuneStatus);
    CLI::App* export_rows = AddTuneCommand(*tune, "export", "Write rows as JSON Lines", TuneExport);
    CLI::App* import_rows =
        AddTuneCommand(*tune, "import", "Add rows of a file where they are better", TuneImport);
    CLI::App* diff = AddTuneCommand(*tune, "diff", "What differs between two files", TuneDiff);
    CLI::App* verify = AddTuneCommand(
        *tune, "verify", "Measure rows again; those that have drifted become stale", TuneVerify);
    for (CLI::App* command : {export_rows, import_rows, diff}) {
      command->add_option("FILE", options.file, "JSON Lines, one row each")->required();
    }
    diff->add_option("OTHER", options.other_file, "The file to compare with")->required();
    verify->add_option("-n,--rows", options.rows, "How many rows, drawn at random")
        ->check(CLI::Range(1, 10'000))
        ->capture_default_str();
    verify->add_flag("--fail", options.fail_on_drift, "Exit with 1 if a row has drifted");
    for (CLI::App* command : {tune, run, verify}) {
      command->add_option("--budget", options.budget_s, "Seconds (default: the daemon's)")
          ->check(CLI::Range(0.001, 86'400.0));
      command->add_flag("--wait", options.wait, "Wait for clients' work to end");
    }
    for (CLI::App* command : {run, export_rows, import_rows, verify}) {
      command->add_option("--gpu", options.gpu, "Index of the GPU")->capture_default_str();
    }
  }

  int Report(const grpc::Status& status, std::ostream& err) const {
    if (status.ok()) return kExitOk;
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE:
        err << "concertctl: no concertd answers on " << options_.socket << ": "
            << LastClause(status.error_message()) << HintOnSocket(status) << "\n";
        return kExitNoDaemon;
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        err << "concertctl: concertd did not answer on " << options_.socket << " within "
            << options_.timeout_ms << " ms\n";
        return kExitFailed;
      default:
        err << "concertctl: " << status.error_message() << "\n";
        return kExitFailed;
    }
  }

  CLI::App app_{"Shows what concertd does and tells it what to do.", "concertctl"};
  Options options_;
  Command command_;
  int exit_code_ = kExitOk;  // of a command that got its answer
};

}  // namespace

int RunConcertctl(int argc, const char* const* argv, const std::string& version, std::ostream& out,
                  std::ostream& err, bool terminal) {
  return App(version).Run(argc, argv, out, err, terminal);
}

}  // namespace concert::ctl
