// The driver of builds without the CUDA toolkit.
#include "client/src/cuda/driver.h"
#include "client/src/failure.h"

namespace concert::client::cuda {
namespace {

int Absent(concert_error* error) {
  return Fail(error, CONCERT_UNIMPLEMENTED,
              "this libconcert was built without CUDA; build it with CONCERT_CUDA=on");
}

}  // namespace

int DescribeDevice(int, Uuid*, concert_error* error) { return Absent(error); }
int Synchronize(const Uuid&, concert_error* error) { return Absent(error); }
int MapVmm(const Uuid&, int, uint64_t, VmmMapping*, concert_error* error) { return Absent(error); }
void UnmapVmm(const VmmMapping&) {}
int DescribePointer(const Uuid&, uint64_t, PointerInfo*, concert_error* error) {
  return Absent(error);
}
int CopyToDevice(const Uuid&, uint64_t, const void*, uint64_t, concert_error* error) {
  return Absent(error);
}
int CopyToHost(const Uuid&, void*, uint64_t, uint64_t, concert_error* error) {
  return Absent(error);
}
int RegisterHost(void*, uint64_t, bool, int*, concert_error* error) { return Absent(error); }
void UnregisterHost(void*, int) {}
int StreamWait(void*, const uint64_t*, uint64_t, concert_error* error) { return Absent(error); }
int StreamWrite(void*, uint64_t*, uint64_t, concert_error* error) { return Absent(error); }

}  // namespace concert::client::cuda
