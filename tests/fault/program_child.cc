#include "tests/fault/program_child.h"

#include <array>

namespace concert::test {

Model SealedModel(const Session& session, uint32_t seed) {
  Model model = MakeModel(session, seed);
  for (Buffer* weights : {&model.table, &model.norm, &model.up, &model.down})
    weights->Seal().Check();
  return model;
}

void RunProgramChild(const std::string& socket, uint32_t seed, const std::function<bool()>& go_on) {
  constexpr size_t kReplicas = 2;
  constexpr uint64_t kRuns = 3;  // of a replica, in flight
  const Session session =
      Session::Connect({.socket_path = socket, .client_name = "doomed"}).value();
  if (!go_on()) return;
  std::array<Model, kReplicas> models;  // each with its own state
  for (Model& model : models) {
    model = SealedModel(session, seed);
    if (!go_on()) return;
  }
  const Buffer tokens = session.Allocate(kReplicas * (kRuns + 1) * kTokensStride).value();
  std::array<Program, kReplicas> programs;
  std::array<Queue, kReplicas> queues;
  for (Queue& queue : queues) queue = session.CreateQueue().value();
  Queue batches = session.CreateQueue().value();
  const StepMemory memory = MakeBuffers(session);
  const Model own = MakeModel(session, seed + 1);  // of the batches
  for (uint32_t round = 0;; ++round) {
    for (size_t i = 0; i < kReplicas; ++i) {
      if (round % 4 == i) programs[i] = MakeStep(session, models[i]);  // and frees the old
      if (!go_on()) return;
      for (uint64_t run = 0; run < kRuns && programs[i].get() != nullptr; ++run) {
        const uint64_t at = (i * (kRuns + 1) + run) * kTokensStride;
        queues[i]
            .Run({.program = programs[i], .bindings = {{tokens, at}, {tokens, at + kTokensStride}}})
            .submit_status()
            .Check();
      }
      if (!go_on()) return;
    }
    {
      Batch batch = session.BeginBatch().value();
      SubmitStep(batches, own, memory);
    }
    if (!go_on()) return;
    if (round % 8 != 7) continue;
    for (const Queue* queue : {&queues[0], &queues[1], &batches}) queue->last().Wait().Check();
    const Buffer more = MakeModel(session, seed + 2 + round).up;
    more.Seal().Check();
    if (!go_on()) return;
  }
}

}  // namespace concert::test
