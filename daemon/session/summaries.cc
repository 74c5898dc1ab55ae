#include "daemon/session/summaries.h"

#include <utility>

namespace concert::daemon {

void Summaries::Update(const Session& session) {
  const MutexLock lock(mutex_);
  SessionSummary& summary = entries_[session.id].session;
  if (summary.id == 0) {
    summary.id = session.id;
    summary.uid = session.uid;
    summary.pid = session.pid;
    summary.name = session.name;
    summary.connected_at_ns = session.connected_at_ns;
    summary.gpus = session.gpus;
  }
  summary.queues = session.queue_count;
  summary.buffers = session.buffer_count;
  summary.buffer_bytes = session.buffer_bytes;
  summary.sealed_bytes = session.sealed_bytes;
  summary.shared_bytes = session.shared_bytes;
  summary.communicators = static_cast<uint32_t>(session.memberships.size());
  summary.closing = session.state != Session::State::kOpen;
}

void Summaries::Remove(uint32_t session) {
  const MutexLock lock(mutex_);
  entries_.erase(session);
}

void Summaries::AddProgram(uint32_t session, uint32_t index, kernels::ProgramSummary program) {
  const MutexLock lock(mutex_);
  entries_.at(session).programs[index] = std::move(program);
}

void Summaries::RemoveProgram(uint32_t session, uint32_t index) {
  const MutexLock lock(mutex_);
  entries_.at(session).programs.erase(index);
}

kernels::ProgramSummary* Summaries::Find(uint32_t session, uint32_t index) {
  auto& programs = entries_.at(session).programs;
  const auto found = programs.find(index);
  return found == programs.end() ? nullptr : &found->second;
}

void Summaries::SetWhyNoStep(uint32_t session, uint32_t index, const std::string& why) {
  const MutexLock lock(mutex_);
  if (kernels::ProgramSummary* program = Find(session, index)) program->why_no_step = why;
}

void Summaries::SetReplicas(std::span<const Replicas::Count> counts) {
  const MutexLock lock(mutex_);
  for (const auto& [session, index, replicas] : counts) {
    if (kernels::ProgramSummary* program = Find(session, index)) program->replicas = replicas;
  }
}

std::vector<SessionSummary> Summaries::All() const {
  std::vector<SessionSummary> all;
  for (uint32_t after = 0;; after = all.back().id) {
    const MutexLock lock(mutex_);  // of one at a time: all may have many programs
    const auto next = entries_.upper_bound(after);
    if (next == entries_.end()) return all;
    all.push_back(next->second.session);
    for (const auto& [index, program] : next->second.programs)
      all.back().programs.push_back(program);
  }
}

size_t Summaries::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace concert::daemon
