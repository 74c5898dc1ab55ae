// The commands under `tune`: the tuning API and files of tuned rows.
#ifndef CONCERT_CLIENT_CTL_TUNE_H_
#define CONCERT_CLIENT_CTL_TUNE_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

namespace concert::ctl {

struct TuneOptions {
  std::string shapes, scenarios, trace;  // files; one of them for `run`
  std::string file, other_file;          // of export, import and diff
  double budget_s = 0;                   // 0: the daemon's
  uint32_t gpu = 0;
  uint32_t rows = 16;        // of verify
  bool collectives = false;  // `run` measures them
  bool force = false, wait = false, fail_on_drift = false;
  bool json = false, terminal = false;
  std::string socket;
  std::chrono::milliseconds timeout{5000};  // of calls that are not runs
};

grpc::Status TuneRun(const TuneOptions& options, std::ostream& out);
grpc::Status TuneStatus(const TuneOptions& options, std::ostream& out);
grpc::Status TuneExport(const TuneOptions& options, std::ostream& out);
grpc::Status TuneImport(const TuneOptions& options, std::ostream& out);
grpc::Status TuneVerify(const TuneOptions& options, std::ostream& out);
// Of two files; needs no daemon.
grpc::Status TuneDiff(const TuneOptions& options, std::ostream& out);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TUNE_H_
