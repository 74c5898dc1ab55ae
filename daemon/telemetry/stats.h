// What the ops and plans of all GPUs did, made of records: per session, per op kind, per GPU.
// Everything is bounded, whatever clients do. Value types; not thread-safe (telemetry.h owns the
// live ones).
#ifndef CONCERT_DAEMON_TELEMETRY_STATS_H_
#define CONCERT_DAEMON_TELEMETRY_STATS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "daemon/telemetry/histogram.h"
#include "daemon/telemetry/records.h"
#include "proto/ring/ring_abi.h"

namespace concert::daemon {

// The highest concert_op_kind.
inline constexpr uint16_t kMaxKind = CONCERT_OP_KIND_COUNT;

// concert_status_abi as gRPC spells it, e.g. "INVALID_ARGUMENT".
std::string_view StatusName(uint16_t status);

// What ops took, in numbers that only grow. Failed ops count in `op_count` and `failed_op_count`
// only, so that a flood of bad ops does not hide what works.
struct OpTotals {
  uint64_t op_count = 0;
  uint64_t failed_op_count = 0;
  uint64_t bytes = 0;
  uint64_t flops = 0;
  double gpu_seconds = 0;
  double queue_wait_seconds = 0;
  uint64_t company_op_count = 0;
  // What company cost: of ops in company, how much longer each ran than it was predicted to take
  // alone, or 0. One that ran longer can still have gained, by starting earlier.
  double interference_seconds = 0;

  void Add(const OpRecord& record);
  void Merge(const OpTotals& other);
  // What was added since `earlier`, an older copy.
  void Subtract(const OpTotals& earlier);
};

struct OpStats : OpTotals {
  static constexpr int kStatusCount = 17;  // gRPC codes; the last slot also takes unknown ones

  std::array<uint64_t, kStatusCount> failures{};  // by status; [0] stays 0
  std::array<uint64_t, policies::kFormCount> form_op_count{};
  // What company gained: of ops in company, predicted time one after the other less gpu_seconds.
  // Negative when company was slower.
  double gained_seconds = 0;
  Histogram queue_wait;  // ready -> started
  Histogram run_time;    // started -> finished

  void Add(const OpRecord& record);
  void Merge(const OpStats& other);
  // What was added since `earlier`, an older copy.
  void Subtract(const OpStats& earlier);
};

// By priority class: the index of Priority p is p + 1.
template <typename T>
using ByClass = std::array<T, policies::kPriorityCount>;

// How many plans a session shared with each other session (and with itself, if it had several ops
// in one).
class Companions {
 public:
  static constexpr size_t kMaxListed = 32;

  // When the list is full, new sessions count under 0.
  void Add(uint32_t session, uint64_t plans = 1);
  void Subtract(const Companions& earlier);
  const std::map<uint32_t, uint64_t>& plans_by_session() const { return plans_; }

 private:
  std::map<uint32_t, uint64_t> plans_;
};

struct SessionStats {
  uint32_t uid = 0;
  OpStats ops;
  std::map<uint8_t, OpTotals> gpus;  // the same ops
  ByClass<OpTotals> classes;         // the same ops
  Companions companions;
  Time last_active_at = 0;
  Time ended_at = 0;  // 0: still connected
};

struct DeviceStats {
  OpStats ops;
  uint64_t plan_count = 0;
  uint64_t company_plan_count = 0;                                        // of more than one op
  std::array<uint64_t, policies::kCompanyClassCount> plans_by_company{};  // CompanyClassOf(ops)
  double predicted_seconds = 0;
  double actual_seconds = 0;
  double serial_seconds = 0;
  int sm_count = 0;  // of the GPU
  // SMs that plans were given, times how long they ran: the launch's budget or the blocks of its
  // work list, of launches side by side the sum, all where the launch may use all, and none for
  // collectives and copies. Plans that run beside each other count each.
  double planned_sm_seconds = 0;
  uint64_t dropped_record_count = 0;

  void Add(const PlanRecord& record);
  void Subtract(const DeviceStats& earlier);
};

struct Stats {
  // Sessions listed at once; beyond that, and kKeepEnded after its end, a session is folded into
  // `departed`, where its later ops count, too.
  static constexpr size_t kMaxSessions = 2048;
  static constexpr Time kKeepEnded = 60'000'000'000;  // 60 s
  // Users of departed sessions that are told apart, each on each of its GPUs; others, and ops of
  // sessions that are not listed, count under kOtherUsers.
  static constexpr size_t kMaxDepartedUsers = 1024;
  static constexpr uint32_t kOtherUsers = ~uint32_t{0};  // the kernel's "no such user"

  using ByUser = std::map<std::pair<uint32_t, uint8_t>, OpTotals>;  // by uid and GPU

  OpStats total;
  std::map<uint8_t, DeviceStats> devices;
  std::map<uint16_t, OpStats> kinds;  // 0: what no kind stands for
  ByClass<OpStats> classes;
  std::map<uint32_t, SessionStats> sessions;
  OpStats departed;
  ByUser departed_users;  // the same ops

  // What the dispatcher of `gpu` recorded.
  void Add(uint8_t gpu, const OpRecord& op);
  void Add(uint8_t gpu, const PlanRecord& plan);
  // Lists the session from here on. Before it has ops.
  void BeginSession(uint32_t session, uint32_t uid);
  // The session has disconnected. Records of it may still come.
  void EndSession(uint32_t session, Time now);
  // Folds sessions that ended long enough ago.
  void FoldEnded(Time now);
  // What was added since `earlier`, an older copy; kinds and sessions with nothing new are removed.
  // Folding moves counts to `departed` as if they were new there.
  void Subtract(const Stats& earlier);
  // All ops of all users, those of departed sessions among them.
  ByUser Users() const;

 private:
  SessionStats* Find(uint32_t session);
  void AddCompany(const PlanRecord& plan);
  OpTotals& DepartedUser(uint32_t uid, uint8_t gpu);
  std::map<uint32_t, SessionStats>::iterator Fold(std::map<uint32_t, SessionStats>::iterator it);
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TELEMETRY_STATS_H_
