// The seam of the library: what the C ABI's opaque handles are. remote/ implements them over a
// daemon, local/ with cuBLASLt in this process. concert.cc has checked struct_size and null
// pointers, and that the handle was made in this process, before it calls these.
//
// A handle shares ownership of its session, so that handles may be freed in any order.
#ifndef CONCERT_CLIENT_SRC_HANDLES_H_
#define CONCERT_CLIENT_SRC_HANDLES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/src/encode/encoded_op.h"
#include "client/src/fork.h"
#include "concert/concert.h"

struct concert_session : std::enable_shared_from_this<concert_session> {
  virtual ~concert_session() = default;

  virtual uint32_t id() const = 0;
  virtual bool is_local() const = 0;
  virtual std::span<const concert_gpu> gpus() const = 0;  // struct_size is not set
  virtual void Close() = 0;

  virtual int Allocate(uint32_t gpu, uint64_t bytes, concert_buffer** buffer,
                       concert_error* error) = 0;
  virtual int Import(const concert_import& import, concert_buffer** buffer,
                     concert_error* error) = 0;
  virtual int CreateQueue(uint32_t gpu, int32_t priority, concert_queue** queue,
                          concert_error* error) = 0;
  virtual int Join(const concert_join& join, concert_communicator** communicator,
                   concert_error* error) = 0;
  virtual int BeginProgram(uint32_t gpu, concert_program** program, concert_queue** queue,
                           concert_error* error) = 0;
  virtual int CreateUserTimeline(concert_user_timeline** timeline, concert_error* error) = 0;

  virtual int BeginBatch(uint32_t gpu, concert_error* error) = 0;
  virtual int EndBatch(uint32_t gpu, concert_error* error) = 0;

  virtual int Poll(concert_ticket ticket, bool* done, concert_error* error) = 0;
  virtual int Wait(concert_ticket ticket, int64_t timeout_ns, concert_error* error) = 0;
  virtual int WaitOnStream(concert_ticket ticket, void* stream, concert_error* error) = 0;

  const concert::client::Origin origin{};
  // The application's reference; concert_session_close drops it.
  std::shared_ptr<concert_session> application;
};

struct concert_buffer {
  // Of a session's memory, or a slot of what is recorded of a program; the other is null.
  concert_buffer(uint64_t bytes, const concert_session* session, const void* recording)
      : session(session), recording(recording), bytes(bytes) {}
  virtual ~concert_buffer() = default;
  virtual int Address(void** address, concert_error* error) = 0;
  virtual int Write(uint64_t offset, const void* data, uint64_t bytes, concert_error* error) = 0;
  virtual int Read(uint64_t offset, void* data, uint64_t bytes, concert_error* error) = 0;
  virtual int Seal(concert_error* error) = 0;

  // Whose number `id` is: that of another may be the same.
  const concert_session* const session;
  const void* const recording;
  const uint64_t bytes;
  // What descriptors carry. Read on the submit path, hence no virtual call.
  uint32_t id = 0;
  bool of_pool = false;  // a framework has its address
  const concert::client::Origin origin{};
};

struct concert_queue {
  // `recording`: what a program is recorded in; null: ops are submitted.
  concert_queue(const concert_session* session, const void* recording)
      : session(session), recording(recording) {}
  virtual ~concert_queue() = default;
  virtual concert_ticket last() const = 0;
  // Fills in the rest of the descriptor.
  virtual int Submit(concert::client::EncodedOp& op, const concert_submit_options& options,
                     concert_ticket* ticket, concert_error* error) = 0;

  const concert_session* const session;
  const void* const recording;
  const concert::client::Origin origin{};
};

struct concert_program {
  explicit concert_program(const concert_session* session) : session(session) {}
  virtual ~concert_program() = default;
  // `role`: concert_slot_role.
  virtual int AddSlot(uint32_t role, uint64_t bytes, concert_buffer** buffer,
                      concert_error* error) = 0;
  // Ascending, the last as ops have it.
  virtual int SetRows(std::span<const uint32_t> rows, concert_error* error) = 0;
  virtual int End(concert_error* error) = 0;

  struct Registered {
    uint32_t rows;  // at most; 0 if SetRows was not called
    uint32_t id;    // what descriptors carry
  };
  std::vector<Registered> registered;  // by rows; empty before End
  const concert_session* const session;
  const concert::client::Origin origin{};
};

struct concert_communicator {
  explicit concert_communicator(const concert_session* session) : session(session) {}
  virtual ~concert_communicator() = default;

  const concert_session* const session;
  const concert::client::Origin origin{};
};

struct concert_user_timeline {
  virtual ~concert_user_timeline() = default;
  virtual concert_ticket At(uint64_t value) const = 0;
  virtual int Signal(uint64_t value, concert_error* error) = 0;
  virtual int SignalOnStream(uint64_t value, void* stream, concert_error* error) = 0;

  const concert::client::Origin origin{};
};

#endif  // CONCERT_CLIENT_SRC_HANDLES_H_
