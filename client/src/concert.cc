// The C ABI: checks what the compiler cannot, forwards to the handle, lets no exception out.
#include "concert/concert.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "client/src/entry.h"
#include "client/src/failure.h"
#include "client/src/handles.h"
#include "client/src/local/connect.h"
#include "client/src/options.h"
#include "client/src/remote/session.h"
#include "proto/ring/control_abi.h"

namespace concert::client {
namespace {

constexpr char kDefaultSocket[] = "/run/concert/concert.sock";

int FallbackWanted(uint32_t option, bool* cublas, concert_error* error) {
  *cublas = option == CONCERT_FALLBACK_CUBLAS;
  if (option > CONCERT_FALLBACK_CUBLAS) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "fallback is %u; the highest is %d", option,
                CONCERT_FALLBACK_CUBLAS);
  }
  if (option != CONCERT_FALLBACK_ENVIRONMENT) return CONCERT_OK;
  const char* value = std::getenv("CONCERT_FALLBACK");
  const std::string_view wanted = value == nullptr ? "" : value;
  *cublas = wanted == "cublas";
  if (*cublas || wanted.empty() || wanted == "none") return CONCERT_OK;
  return Fail(error, CONCERT_INVALID_ARGUMENT,
              "CONCERT_FALLBACK is '%.64s'; it must be 'cublas' or 'none'", value);
}

// The option, or what the environment says instead.
int BatchesWanted(uint32_t option, uint32_t* batches, concert_error* error) {
  *batches = option;
  if (option > CONCERT_BATCHES_OPS) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "batches is %u; the highest is %d", option,
                CONCERT_BATCHES_OPS);
  }
  if (option != CONCERT_BATCHES_ENVIRONMENT) return CONCERT_OK;
  const char* value = std::getenv("CONCERT_BATCHES");
  const std::string_view wanted = value == nullptr ? "" : value;
  *batches = wanted == "ops" ? CONCERT_BATCHES_OPS : CONCERT_BATCHES_PROGRAMS;
  if (wanted == "ops" || wanted.empty() || wanted == "programs") return CONCERT_OK;
  return Fail(error, CONCERT_INVALID_ARGUMENT,
              "CONCERT_BATCHES is '%.64s'; it must be 'programs' or 'ops'", value);
}

int Connect(concert_connect_options options, std::shared_ptr<concert_session>* session,
            concert_error* error) {
  bool cublas = false;
  if (int code = FallbackWanted(options.fallback, &cublas, error)) return code;
  if (int code = BatchesWanted(options.batches, &options.batches, error)) return code;
  const char* path = options.socket_path;
  if (path == nullptr) path = std::getenv("CONCERT_SOCKET");
  if (path == nullptr || *path == '\0') path = kDefaultSocket;

  concert_error remote_error;
  bool no_daemon = false;
  const int code = RemoteSession::Connect(path, options, session, &no_daemon, &remote_error);
  if (code == CONCERT_OK) return CONCERT_OK;
  if (!no_daemon || !cublas) {
    return Fail(error, code, "%s%s", remote_error.message,
                no_daemon ? "; start concertd or set CONCERT_FALLBACK=cublas" : "");
  }
  return ConnectLocal(options, remote_error.message, session, error);
}

// In a child of fork() a handle stays as it is: its destructor would tell the daemon and take locks
// that threads of the parent may hold for ever.
template <typename Handle>
void Release(Handle* handle) {
  if (handle != nullptr && !IsForked(handle)) delete handle;
}

int CheckRange(const concert_buffer* buffer, uint64_t offset, uint64_t bytes,
               concert_error* error) {
  if (offset <= buffer->bytes && bytes <= buffer->bytes - offset) return CONCERT_OK;
  return Fail(error, CONCERT_INVALID_ARGUMENT,
              "%llu bytes at offset %llu do not fit in the buffer of %llu bytes",
              static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(offset),
              static_cast<unsigned long long>(buffer->bytes));
}

}  // namespace
}  // namespace concert::client

using concert::client::CheckRange;
using concert::client::CopyOptions;
using concert::client::Fail;
using concert::client::Guard;
using concert::client::IsForked;
using concert::client::Release;

const char* concert_version(void) { return CONCERT_VERSION; }

const char* concert_code_name(int code) {
  switch (static_cast<concert_code>(code)) {
    case CONCERT_OK:
      return "OK";
    case CONCERT_CANCELLED:
      return "CANCELLED";
    case CONCERT_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case CONCERT_DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case CONCERT_NOT_FOUND:
      return "NOT_FOUND";
    case CONCERT_PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    case CONCERT_RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case CONCERT_FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case CONCERT_UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case CONCERT_INTERNAL:
      return "INTERNAL";
    case CONCERT_UNAVAILABLE:
      return "UNAVAILABLE";
  }
  return "UNKNOWN";
}

int concert_connect(const concert_connect_options* options, concert_session** session,
                    concert_error* error) {
  CONCERT_REQUIRE(session);
  concert_connect_options known{};
  if (options != nullptr) {
    if (int code = CopyOptions(options, "concert_connect_options", &known, error)) return code;
  }
  return Guard(error, [&] {
    if (!concert::client::WatchForks()) {
      return Fail(error, CONCERT_RESOURCE_EXHAUSTED, "pthread_atfork: out of memory");
    }
    std::shared_ptr<concert_session> made;
    if (int code = concert::client::Connect(known, &made, error)) return code;
    *session = made.get();
    made->application = std::move(made);
    return static_cast<int>(CONCERT_OK);
  });
}

void concert_session_close(concert_session* session) {
  if (session == nullptr || IsForked(session)) return;
  session->Close();
  // Moved out first: the member must not destroy the object that it is a part of.
  const std::shared_ptr<concert_session> last = std::move(session->application);
}

uint32_t concert_session_id(const concert_session* session) {
  return session == nullptr ? 0 : session->id();
}
int concert_session_is_local(const concert_session* session) {
  return session != nullptr && session->is_local() ? 1 : 0;
}
uint32_t concert_gpu_count(const concert_session* session) {
  return session == nullptr ? 0 : static_cast<uint32_t>(session->gpus().size());
}

int concert_gpu_info_get(const concert_session* session, uint32_t index, concert_gpu* gpu,
                         concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  CONCERT_REQUIRE(gpu);
  if (gpu->struct_size < sizeof(uint32_t)) {
    return Fail(error, CONCERT_INVALID_ARGUMENT,
                "concert_gpu.struct_size is %u; set it to sizeof(concert_gpu)", gpu->struct_size);
  }
  if (index >= session->gpus().size()) {
    return Fail(error, CONCERT_INVALID_ARGUMENT, "index is %u, but the node has %zu GPUs", index,
                session->gpus().size());
  }
  concert_gpu known = session->gpus()[index];
  known.struct_size = gpu->struct_size;
  std::memcpy(gpu, &known, std::min<size_t>(gpu->struct_size, sizeof(known)));
  return CONCERT_OK;
}

int concert_buffer_allocate(concert_session* session, uint32_t gpu, uint64_t bytes,
                            concert_buffer** buffer, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  CONCERT_REQUIRE(buffer);
  return Guard(error, [&] { return session->Allocate(gpu, bytes, buffer, error); });
}

int concert_buffer_import(concert_session* session, const concert_import* options,
                          concert_buffer** buffer, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  CONCERT_REQUIRE(buffer);
  concert_import known;
  if (int code = CopyOptions(options, "concert_import", &known, error)) return code;
  return Guard(error, [&] { return session->Import(known, buffer, error); });
}

uint64_t concert_buffer_bytes(const concert_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->bytes;
}

int concert_buffer_address(concert_buffer* buffer, void** address, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(buffer);
  CONCERT_REQUIRE(address);
  return Guard(error, [&] { return buffer->Address(address, error); });
}

int concert_buffer_write(concert_buffer* buffer, uint64_t offset, const void* data, uint64_t bytes,
                         concert_error* error) {
  CONCERT_REQUIRE_HANDLE(buffer);
  CONCERT_REQUIRE(data);
  if (int code = CheckRange(buffer, offset, bytes, error)) return code;
  return Guard(error, [&] { return buffer->Write(offset, data, bytes, error); });
}

int concert_buffer_read(concert_buffer* buffer, uint64_t offset, void* data, uint64_t bytes,
                        concert_error* error) {
  CONCERT_REQUIRE_HANDLE(buffer);
  CONCERT_REQUIRE(data);
  if (int code = CheckRange(buffer, offset, bytes, error)) return code;
  return Guard(error, [&] { return buffer->Read(offset, data, bytes, error); });
}

int concert_buffer_seal(concert_buffer* buffer, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(buffer);
  if (buffer->of_pool) {
    return Fail(
        error, CONCERT_FAILED_PRECONDITION,
        "a buffer of the pool cannot be sealed: who allocated it has its address; copy it to "
        "another buffer and seal that");
  }
  return Guard(error, [&] { return buffer->Seal(error); });
}

void concert_buffer_free(concert_buffer* buffer) { Release(buffer); }

int concert_queue_create(concert_session* session, uint32_t gpu, int32_t priority,
                         concert_queue** queue, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  CONCERT_REQUIRE(queue);
  return Guard(error, [&] { return session->CreateQueue(gpu, priority, queue, error); });
}

void concert_queue_destroy(concert_queue* queue) { Release(queue); }
concert_ticket concert_queue_last(const concert_queue* queue) {
  return queue == nullptr ? concert_ticket{} : queue->last();
}

int concert_program_begin(concert_session* session, uint32_t gpu, concert_program** program,
                          concert_queue** queue, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  CONCERT_REQUIRE(program);
  CONCERT_REQUIRE(queue);
  return Guard(error, [&] { return session->BeginProgram(gpu, program, queue, error); });
}

int concert_program_arena(concert_program* program, uint64_t bytes, concert_buffer** buffer,
                          concert_error* error) {
  CONCERT_REQUIRE_HANDLE(program);
  CONCERT_REQUIRE(buffer);
  return Guard(error, [&] { return program->AddSlot(CONCERT_SLOT_ARENA, bytes, buffer, error); });
}

int concert_program_binding(concert_program* program, uint64_t bytes, concert_buffer** buffer,
                            concert_error* error) {
  CONCERT_REQUIRE_HANDLE(program);
  CONCERT_REQUIRE(buffer);
  return Guard(error, [&] { return program->AddSlot(CONCERT_SLOT_BINDING, bytes, buffer, error); });
}

int concert_program_rows(concert_program* program, const uint32_t* rows, uint32_t count,
                         concert_error* error) {
  CONCERT_REQUIRE_HANDLE(program);
  CONCERT_REQUIRE(rows);
  return Guard(error, [&] { return program->SetRows({rows, count}, error); });
}

int concert_program_end(concert_program* program, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(program);
  return Guard(error, [&] { return program->End(error); });
}

void concert_program_free(concert_program* program) { Release(program); }

int concert_batch_begin(concert_session* session, uint32_t gpu, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  return session->BeginBatch(gpu, error);
}

int concert_batch_end(concert_session* session, uint32_t gpu, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  return session->EndBatch(gpu, error);
}

int concert_poll(concert_session* session, concert_ticket ticket, int* done, concert_error* error) {
  CONCERT_REQUIRE(done);
  *done = 1;  // also when there is no session to ask
  CONCERT_REQUIRE_HANDLE(session);
  bool reached = false;
  const int code = Guard(error, [&] { return session->Poll(ticket, &reached, error); });
  // An error ends the waiting too: nobody should poll on for a ticket that cannot be reached.
  *done = reached || code != CONCERT_OK;
  return code;
}

int concert_wait(concert_session* session, concert_ticket ticket, int64_t timeout_ns,
                 concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  return Guard(error, [&] { return session->Wait(ticket, timeout_ns, error); });
}

int concert_wait_on_stream(concert_session* session, concert_ticket ticket, void* stream,
                           concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  return Guard(error, [&] { return session->WaitOnStream(ticket, stream, error); });
}

int concert_user_timeline_create(concert_session* session, concert_user_timeline** timeline,
                                 concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  CONCERT_REQUIRE(timeline);
  return Guard(error, [&] { return session->CreateUserTimeline(timeline, error); });
}

void concert_user_timeline_destroy(concert_user_timeline* timeline) { Release(timeline); }

concert_ticket concert_user_timeline_ticket(const concert_user_timeline* timeline, uint64_t value) {
  return timeline == nullptr ? concert_ticket{} : timeline->At(value);
}

int concert_user_timeline_signal(concert_user_timeline* timeline, uint64_t value,
                                 concert_error* error) {
  CONCERT_REQUIRE_HANDLE(timeline);
  return timeline->Signal(value, error);
}

int concert_user_timeline_signal_on_stream(concert_user_timeline* timeline, uint64_t value,
                                           void* stream, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(timeline);
  return Guard(error, [&] { return timeline->SignalOnStream(value, stream, error); });
}

int concert_communicator_join(concert_session* session, const concert_join* options,
                              concert_communicator** communicator, concert_error* error) {
  CONCERT_REQUIRE_HANDLE(session);
  CONCERT_REQUIRE(communicator);
  concert_join known;
  if (int code = CopyOptions(options, "concert_join", &known, error)) return code;
  return Guard(error, [&] { return session->Join(known, communicator, error); });
}

void concert_communicator_leave(concert_communicator* communicator) { Release(communicator); }
