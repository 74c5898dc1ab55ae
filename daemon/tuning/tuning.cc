#include "daemon/tuning/tuning.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/clock.h"
#include "daemon/service/log.h"

namespace concert::daemon {
namespace {

constexpr absl::Duration kIdlePeriod = absl::Seconds(1);
constexpr absl::Duration kQuietPoll = absl::Milliseconds(5);
constexpr double kCollectivesBudgetS = 60;  // a run takes seconds

std::string What(const TuningRequest& request) {
  return request.collectives ? "collectives" : absl::StrCat("GPU ", request.gpu);
}

// Adds what became of one import to `result`. Not OK: the store is of no use any more.
absl::Status Count(const absl::StatusOr<Store::PutResult>& put, ImportResult& result) {
  if (put.ok()) {
    ++(*put == Store::PutResult::kKept ? result.kept : result.imported);
  } else if (absl::IsInvalidArgument(put.status())) {
    if (result.refused++ == 0) result.first_refusal = std::string(put.status().message());
  } else {
    return put.status();
  }
  return absl::OkStatus();
}

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

Tuning::Tuning(const TuningOptions& options, Engine& engine)
    : options_(options),
      engine_(engine),
      store_(Store::Open(options.store_path)),
      idle_(static_cast<size_t>(engine.gpu_count())) {
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    environments_.push_back(EnvironmentOf(engine_.node().gpu(gpu).info()));
  }
  collectives_ = EnvironmentOfCollectives(engine_.node());
}

void Tuning::Start() {
  PublishAll();
  thread_ = std::thread(&Tuning::Run, this);
}

void Tuning::BeginStop() {
  const absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

void Tuning::Stop() {
  BeginStop();
  if (thread_.joinable()) thread_.join();
}

void Tuning::Run() {
  pthread_setname_np(pthread_self(), "tuner");
  while (!stopping_) {
    if (!TakeJob() && options_.idle && !stopping_) LookForIdleWork();
  }
  const absl::MutexLock lock(&mutex_);
  if (!job_.running) return;  // else it came too late to be begun
  job_.running = false;
  ++job_.version;
  job_.result = absl::UnavailableError("the daemon is shutting down");
}

// Runs the next job, once there is one. False: none has come for a while, or it is time to stop.
bool Tuning::TakeJob() {
  TuningRequest request;
  uint64_t id;
  {
    const absl::MutexLock lock(&mutex_);
    const auto wanted = [this] {
      mutex_.AssertReaderHeld();
      return stopping_ || next_.has_value();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&wanted),
                            options_.idle ? kIdlePeriod : absl::InfiniteDuration());
    if (stopping_ || !next_) return false;
    request = *std::move(next_);
    next_.reset();
    id = job_.id;
  }
  RunJob(id, request, /*idle=*/false);
  return true;
}

// A pass over what clients have used, on the first GPU that has been quiet for a whole period.
void Tuning::LookForIdleWork() {
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    Idle& idle = idle_[static_cast<size_t>(gpu)];
    const bool quiet = !busy(gpu) && !std::exchange(idle.was_busy, busy(gpu));
    idle.done &= !Observe(gpu, idle);
    if (!quiet || idle.done) continue;
    uint64_t id;
    {
      const absl::MutexLock lock(&mutex_);
      if (next_.has_value()) return;
      job_ = {.id = job_.id + 1, .running = true, .gpu = gpu, .idle = true};
      id = job_.id;
    }
    RunJob(id, {.gpu = gpu, .items = idle.items}, /*idle=*/true);
    const absl::MutexLock lock(&mutex_);
    // After a failure of the device it is not tried again and again.
    idle.done = job_.id == id && !job_.out_of_time && !absl::IsCancelled(job_.result);
    return;
  }
}

// True: there is something new.
bool Tuning::Observe(int gpu, Idle& idle) {
  if (options_.observed == nullptr) return false;
  bool news = false;
  for (const TuningItem& item : options_.observed(gpu)) {
    const auto same = [&](const TuningItem& other) { return other.problem == item.problem; };
    if (std::any_of(idle.items.begin(), idle.items.end(), same)) continue;
    if (idle.items.size() == kMaxObserved) break;
    idle.items.push_back(item);
    news = true;
  }
  return news;
}

void Tuning::RunJob(uint64_t id, const TuningRequest& request, bool idle) {
  current_ = id;
  started_ns_ = NowNs();
  Log(idle ? LogLevel::kDebug : LogLevel::kInfo,
      absl::StrCat("tuning of ", What(request), " begins",
                   request.verify_rows > 0 ? ", to verify rows" : ""));
  absl::Status status = Perform(request, idle);
  const bool out_of_time = NowNs() >= deadline_ns_;
  if (absl::IsCancelled(status) && out_of_time && !Stopped()) status = absl::OkStatus();
  if (!status.ok() && !absl::IsCancelled(status))
    Log(LogLevel::kWarning, absl::StrCat("tuning of ", What(request), ": ", status.message()));
  Log(idle ? LogLevel::kDebug : LogLevel::kInfo,
      absl::StrCat("tuning of ", What(request), " ended after ",
                   (NowNs() - started_ns_) / 1'000'000, " ms",
                   out_of_time ? ", its time being over" : ""));
  UpdateJob([&](TuningJob& job) {
    job.running = false;
    job.out_of_time = status.ok() && out_of_time;
    job.result = status;
  });
}

absl::Status Tuning::Perform(const TuningRequest& request, bool idle) {
  const double usual_s =
      request.collectives ? std::min(kCollectivesBudgetS, options_.budget_s) : options_.budget_s;
  deadline_ns_ = started_ns_ + Nanoseconds(request.budget_s > 0 ? request.budget_s : usual_s);
  if (request.wait) {
    if (absl::Status status = WaitUntilQuiet(request); !status.ok()) return status;
  }
  return request.collectives ? PerformCollectives() : PerformGemms(request, idle);
}

absl::Status Tuning::PerformCollectives() {
  Node& node = engine_.node();
  const DeviceInfo& info = node.gpu(0).info();
  std::vector<int> pair = {0, 1}, all;
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) all.push_back(gpu);
  for (const auto& gpus : {pair, all}) {
    if (absl::Status status = node.Connect(gpus); !status.ok()) return status;
  }
  CollectiveBenchOptions options = options_.collectives;
  if (options.tensor_bytes == 0) options = SuitableCollectiveBenchOptions(info);
  options.stop = [this] { return Stopped() || NowNs() >= deadline_ns_; };
  options.busy = [this](int gpu) { return busy(gpu); };
  auto bench = CollectiveBench::Create(engine_, options);
  if (!bench.ok()) return bench.status();
  CollectiveTuner tuner(**bench, *store_, collectives_, info.model, engine_.gpu_count(),
                        std::time(nullptr));
  const absl::Status status = tuner.Run([this](const TuningProgress& progress) {
    UpdateJob([&](TuningJob& job) { job.progress = progress; });
  });
  PublishAll();  // a cut run has found something, too
  return status;
}

absl::Status Tuning::PerformGemms(const TuningRequest& request, bool idle) {
  const int gpu = request.gpu;
  Device& device = engine_.node().gpu(gpu);
  DeviceBenchOptions bench_options = SuitableBenchOptions(device.info());
  bench_options.stop = [this, gpu, idle] {
    return Stopped() || NowNs() >= deadline_ns_ || (idle && busy(gpu));
  };
  if (options_.plan_group != nullptr) bench_options.plan_group = options_.plan_group(gpu);
  absl::StatusOr<std::unique_ptr<DeviceBench>> bench =
      DeviceBench::Create(device, engine_.node(), engine_.dispatcher(gpu).mailbox(), bench_options);
  if (!bench.ok()) return bench.status();
  Tuner tuner(**bench, *store_, environments_[static_cast<size_t>(gpu)],
              {.device = device.info().model,
               .force = request.force,
               // The same sets in every run, other rows in every verification.
               .seed = request.verify_rows > 0 ? static_cast<uint64_t>(NowNs()) : 1,
               .measured_at_s = std::time(nullptr)});
  absl::Status status;
  if (request.verify_rows > 0) {
    status = tuner.Verify(request.verify_rows, [this](const VerifiedRow& row) {
      UpdateJob([&](TuningJob& job) { job.verified.push_back(row); });
    });
  } else {
    status = tuner.Run(request.items, [this](const TuningProgress& progress) {
      UpdateJob([&](TuningJob& job) { job.progress = progress; });
    });
    UpdateJob([&](TuningJob& job) { job.progress = tuner.progress(); });
  }
  Publish(gpu);  // a cut run has found something, too
  return status;
}

bool Tuning::Busy(const TuningRequest& request) {
  if (!request.collectives) return busy(request.gpu);
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    if (busy(gpu)) return true;
  }
  return false;
}

absl::Status Tuning::WaitUntilQuiet(const TuningRequest& request) {
  UpdateJob([](TuningJob& job) { job.progress.current = "waiting for clients' work to end"; });
  while (Busy(request)) {
    const absl::MutexLock lock(&mutex_);
    const auto stop = [this] { return Stopped(); };
    if (mutex_.AwaitWithTimeout(absl::Condition(&stop), kQuietPoll) || NowNs() >= deadline_ns_)
      return absl::CancelledError("stopped while waiting for clients' work to end");
  }
  return absl::OkStatus();
}

void Tuning::Publish(int gpu) {
  std::shared_ptr<const policies::TunedTable> table =
      store_->LoadTable(environments_[static_cast<size_t>(gpu)], store_->LoadCurves(collectives_));
  const size_t rows = table == nullptr ? 0 : table->rows().size();
  const absl::Status status = engine_.SetTuned(gpu, std::move(table));
  if (status.ok()) {
    Log(LogLevel::kDebug, absl::StrCat("GPU ", gpu, " plans by ", rows, " measured times"));
  } else {
    Log(LogLevel::kError, absl::StrCat("what was tuned is not used: ", status.message()));
  }
}

void Tuning::PublishAll() {
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) Publish(gpu);
}

bool Tuning::Stopped() const { return stopping_ || current_ <= cancelled_; }

bool Tuning::busy(int gpu) {
  return engine_.dispatcher(gpu).gauges().unfinished_ops.load(std::memory_order_relaxed) > 0;
}

template <typename Change>
void Tuning::UpdateJob(Change change) {
  const absl::MutexLock lock(&mutex_);
  if (job_.id != current_) return;  // idle work that has given way
  change(job_);
  ++job_.version;
  job_.elapsed_s = static_cast<double>(NowNs() - started_ns_) * 1e-9;
}

absl::Status Tuning::CheckGpu(int gpu) const {
  if (gpu >= 0 && gpu < engine_.gpu_count()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("gpu is ", gpu, "; this node has 0 to ", engine_.gpu_count() - 1));
}

absl::StatusOr<uint64_t> Tuning::StartJob(const TuningRequest& request) {
  if (absl::Status status = CheckGpu(request.gpu); !status.ok()) return status;
  if (request.collectives && engine_.gpu_count() < 2)
    return absl::InvalidArgumentError(
        "this node has one GPU; collectives are measured between two");
  if (!request.collectives && request.items.empty() && request.verify_rows <= 0)
    return absl::InvalidArgumentError("there is nothing to tune; name at least one problem");
  if (!request.wait && Busy(request)) {
    return absl::FailedPreconditionError(
        absl::StrCat(request.collectives ? "a GPU" : absl::StrCat("GPU ", request.gpu),
                     " has unfinished ops of clients, beside which nothing can be "
                     "measured; use --wait to wait for their end"));
  }
  const absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("the daemon is shutting down");
  if (next_.has_value() || (job_.running && !job_.idle)) {
    return absl::FailedPreconditionError(
        absl::StrCat("tuning of ", What({.gpu = job_.gpu, .collectives = job_.collectives}),
                     " runs already; concertctl tune status shows it"));
  }
  if (job_.running) cancelled_ = job_.id;  // idle work gives way
  job_ = {
      .id = job_.id + 1, .running = true, .gpu = request.gpu, .collectives = request.collectives};
  next_ = request;
  return job_.id;
}

TuningJob Tuning::WaitForChange(uint64_t id, uint64_t version, std::chrono::milliseconds limit) {
  const absl::MutexLock lock(&mutex_);
  const auto changed = [&] {
    mutex_.AssertReaderHeld();
    return job_.id != id || job_.version != version;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&changed), absl::FromChrono(limit));
  return job_;
}

void Tuning::CancelJob(uint64_t id) {
  const absl::MutexLock lock(&mutex_);
  if (job_.id == id) cancelled_ = id;
}

TuningSummary Tuning::Summary() {
  TuningSummary summary{.store_path = store_->path(),
                        .persistent = store_->persistent(),
                        .warning = store_->warning(),
                        .hits = store_->hits(),
                        .misses = store_->misses(),
                        .stale_hits = store_->stale_hits()};
  for (int gpu = 0; gpu < engine_.gpu_count(); ++gpu) {
    const Environment& environment = environments_[static_cast<size_t>(gpu)];
    TuningSummary::Gpu& entry = summary.gpus.emplace_back();
    entry.gpu = gpu;
    entry.environment = environment;
    for (const StoredRow& row : store_->Rows(environment))
      ++(row.stale ? entry.stale_rows : entry.rows);
  }
  summary.collectives = collectives_;
  summary.curves = static_cast<uint32_t>(store_->Curves(collectives_).size());
  summary.invalid_rows = store_->invalid_rows();
  const absl::MutexLock lock(&mutex_);
  summary.job = job_;
  return summary;
}

absl::StatusOr<std::vector<StoredRow>> Tuning::Rows(int gpu) {
  if (absl::Status status = CheckGpu(gpu); !status.ok()) return status;
  return store_->Rows(environments_[static_cast<size_t>(gpu)]);
}

absl::StatusOr<ImportResult> Tuning::Import(int gpu, std::span<const StoredRow> rows) {
  if (absl::Status status = CheckGpu(gpu); !status.ok()) return status;
  ImportResult result;
  for (const StoredRow& row : rows) {
    const absl::Status counted =
        Count(store_->Put(environments_[static_cast<size_t>(gpu)], row), result);
    if (!counted.ok()) return counted;
  }
  Publish(gpu);
  return result;
}

std::vector<StoredCurve> Tuning::Curves() { return store_->Curves(collectives_); }

absl::StatusOr<ImportResult> Tuning::ImportCurves(std::span<const StoredCurve> curves) {
  ImportResult result;
  for (const StoredCurve& curve : curves) {
    const absl::Status counted = Count(store_->PutCurve(collectives_, curve), result);
    if (!counted.ok()) return counted;
  }
  PublishAll();
  return result;
}

}  // namespace concert::daemon
