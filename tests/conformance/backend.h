// The backends that the conformance suite runs against, behind what differs between them for a
// test: how to open one, how to reach its memory, and what makes its time pass.
#ifndef CONCERT_TESTS_CONFORMANCE_BACKEND_H_
#define CONCERT_TESTS_CONFORMANCE_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/device/device.h"

namespace concert::daemon::conformance {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Node& node() = 0;
  // Memory of `gpu`. REQUIRES: no launched work uses it.
  virtual void Write(int gpu, Address to, const void* from, uint64_t bytes) = 0;
  // Writes the start of what Allocate gave as a client of another process does: at any time, also
  // while work uses it.
  virtual void WriteAsClient(const Allocation& to, const void* from, uint64_t bytes) = 0;
  virtual void Read(int gpu, void* to, Address from, uint64_t bytes) = 0;
  // What Allocate's export_fd is imported as: a concert_import_kind.
  virtual uint32_t export_kind() const = 0;
  // Lets all launched work end, or waits until `word` reaches `value`; false if it does not within
  // 30 s.
  virtual bool WaitFor(const uint64_t& word, uint64_t value) = 0;
  // Makes the GPU fault; false where a test cannot.
  virtual bool Fault(int gpu) = 0;
};

// "sim_virtual", "sim_real_time", "sim_flat_out" or "cuda"; opened once per process where opening
// is dear. An error: not to be had on this machine, and why.
absl::StatusOr<std::shared_ptr<Backend>> OpenBackend(const std::string& name);

}  // namespace concert::daemon::conformance

#endif  // CONCERT_TESTS_CONFORMANCE_BACKEND_H_
