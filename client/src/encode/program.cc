#include <algorithm>
#include <vector>

#include "client/src/encode/fields.h"
#include "client/src/encode/submit.h"
#include "proto/ring/messages.h"

namespace concert::client {
namespace {

int CheckRun(const concert_run& run, const concert_queue& queue, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(run.program);
  if (run.program->session != queue.session) {
    return Fail(error, CONCERT_NOT_FOUND,
                "the program is not one of the queue's session, but of session %u",
                run.program->session->id());
  }
  if (run.binding_count > CONCERT_BINDINGS_MAX) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "binding_count is %u; a program has at most %d",
                run.binding_count, CONCERT_BINDINGS_MAX);
  }
  if (run.binding_count > 0 && run.bindings == nullptr) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "bindings is NULL but binding_count is %u",
                run.binding_count);
  }
  if (run.program->registered.empty()) {
    return Fail(error, CONCERT_FAILED_PRECONDITION,
                "the program is not registered; call concert_program_end first");
  }
  return CONCERT_OK;
}

// REQUIRES: the program is registered.
int ChooseRows(const concert_run& run, uint32_t* program, concert_error* error) {
  const std::vector<concert_program::Registered>& made = run.program->registered;
  const auto chosen =
      run.rows == 0 ? made.end() - 1 : std::find_if(made.begin(), made.end(), [&](const auto& one) {
        return one.rows >= run.rows;
      });
  if (chosen != made.end()) {
    *program = chosen->id;
    return CONCERT_OK;
  }
  if (made.back().rows == 0) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "rows is %u, but the program runs with all of its rows only; call "
                "concert_program_rows before concert_program_end, or leave it 0",
                run.rows);
  }
  return Fail(error, CONCERT_INVALID_ARGUMENT, "rows is %u; the program has at most %u", run.rows,
              made.back().rows);
}

void Encode(const concert_run& run, EncodedOp* to) {
  to->refused = CheckRun(run, to->queue, to->error);
  if (to->refused != CONCERT_OK) return;
  to->descriptor.kind = CONCERT_OP_PROGRAM;
  to->features = CONCERT_FEATURE_PROGRAMS;
  to->needs = "programs";
  concert_program_body& body = to->descriptor.body.program;
  to->refused = ChooseRows(run, &body.program, to->error);
  if (to->refused != CONCERT_OK) return;
  body.binding_count = run.binding_count;
  for (uint32_t i = 0; i < run.binding_count; ++i) {
    body.bindings[i] =
        Operand(concert_field_name(CONCERT_FIELD_BINDING_0 + i), run.bindings[i], to);
  }
}

}  // namespace
}  // namespace concert::client

int concert_submit_run(concert_queue* queue, const concert_run* run,
                       const concert_submit_options* options, concert_ticket* ticket,
                       concert_error* error) {
  return concert::client::Submit(queue, run, "concert_run", concert::client::Encode, options,
                                 ticket, error);
}
