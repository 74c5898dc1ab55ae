// A program of a session with a daemon: recorded here, registered as a whole.
#ifndef CONCERT_CLIENT_SRC_REMOTE_PROGRAM_H_
#define CONCERT_CLIENT_SRC_REMOTE_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/src/clock.h"
#include "client/src/handles.h"
#include "client/src/remote/session.h"
#include "proto/ring/control_abi.h"
#include "proto/unique_fd.h"

namespace concert::client {

// What is recorded. The program, its queue and its slots share it, so that they may be freed in any
// order.
struct Recording {
  std::vector<concert_program_slot> slots;
  std::vector<concert_descriptor> ops;
  std::vector<uint32_t> rows;  // ascending, the last that of ops; empty: they are what they are
  bool ended = false;
};

// A memfd as concert_create_program wants it. Not valid: errno says why.
UniqueFd ProgramFile(std::span<const concert_program_slot> slots,
                     std::span<const concert_descriptor> ops);

class RemoteProgram final : public concert_program {
 public:
  static int Begin(std::shared_ptr<RemoteSession> session, uint32_t gpu, concert_program** program,
                   concert_queue** queue, concert_error* error);
  ~RemoteProgram() override;

  int AddSlot(uint32_t role, uint64_t bytes, concert_buffer** buffer,
              concert_error* error) override;
  int SetRows(std::span<const uint32_t> rows, concert_error* error) override;
  int End(concert_error* error) override;

 private:
  RemoteProgram(std::shared_ptr<RemoteSession> session, uint32_t gpu)
      : concert_program(session.get()), session_(std::move(session)), gpu_(gpu) {}
  int Register(uint32_t rows, std::span<const concert_descriptor> ops, const Deadline& deadline,
               concert_error* error);
  // What was recorded, for each number of its rows.
  int RegisterEachRows(const Deadline& deadline, concert_error* error);
  void Release(const Deadline& deadline);

  const std::shared_ptr<RemoteSession> session_;
  const uint32_t gpu_;
  const std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_PROGRAM_H_
