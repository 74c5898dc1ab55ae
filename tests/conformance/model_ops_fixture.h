// What conformance tests of the kinds from embedding on have in common.
#ifndef CONCERT_TESTS_CONFORMANCE_MODEL_OPS_FIXTURE_H_
#define CONCERT_TESTS_CONFORMANCE_MODEL_OPS_FIXTURE_H_

#include <array>

#include "tests/conformance/device_fixture.h"
#include "tests/conformance/indices.h"

namespace concert::daemon::conformance {

inline constexpr std::array kElementTypes = {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32};

class ModelOpsConformanceTest : public DeviceTest {
 protected:
  void RunKind(concert_descriptor& descriptor, uint16_t kind) {
    descriptor.kind = kind;
    Run(Admit(descriptor));
  }
  Values ReadValues(uint32_t buffer, Dtype dtype, uint64_t count) {
    return Decode(dtype, Read(buffer, count * DtypeBytes(dtype)));
  }
};

}  // namespace concert::daemon::conformance

#endif  // CONCERT_TESTS_CONFORMANCE_MODEL_OPS_FIXTURE_H_
