#include "daemon/device/cuda/nvtx_ranges.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

namespace concert::daemon::cuda {
namespace {

using policies::Form;
using policies::Reason;

// NVTX looks for a tool once, with its first call.
class NvtxRangesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("NVTX_INJECTION64_PATH", CONCERT_NVTX_RECORDER, 1);
    void* const recorder = dlopen(CONCERT_NVTX_RECORDER, RTLD_NOW);
    ASSERT_NE(recorder, nullptr) << dlerror();
    take_record_ = reinterpret_cast<const char* (*)()>(dlsym(recorder, "TakeRecord"));
    ASSERT_NE(take_record_, nullptr);
  }
  static std::string TakeRecord() { return take_record_(); }

  static const char* (*take_record_)();
};

const char* (*NvtxRangesTest::take_record_)() = nullptr;

TEST_F(NvtxRangesTest, ALaunchIsNamedByKindFormReasonAndPlan) {
  const NvtxRanges ranges(/*on=*/true);
  {
    const NvtxRanges::Range range(ranges, CONCERT_OP_GEMM, Form::kGroup, Reason::kTogetherFaster,
                                  17);
    EXPECT_EQ(TakeRecord(), "push concert: gemm, group [together is predicted faster] plan 17\n");
  }
  EXPECT_EQ(TakeRecord(), "pop\n");
  {
    const NvtxRanges::Range range(ranges, CONCERT_OP_BARRIER, Form::kSingle, Reason::kCollective,
                                  0);
  }
  EXPECT_EQ(TakeRecord(),
            "push concert: barrier, single [a collective goes out at once] plan 0\npop\n");
}

TEST_F(NvtxRangesTest, NobodyIsToldWhileItIsOff) {
  const NvtxRanges ranges(/*on=*/false);
  {
    const NvtxRanges::Range range(ranges, CONCERT_OP_GEMM, Form::kSingle, Reason::kOnlyOneReady, 1);
  }
  EXPECT_EQ(TakeRecord(), "");
}

TEST_F(NvtxRangesTest, EveryReasonHasACategory) {
  const NvtxRanges ranges(/*on=*/true);
  for (int i = 0; i < policies::kReasonCount; ++i) {
    { const NvtxRanges::Range range(ranges, 1, Form::kSingle, static_cast<Reason>(i), 1); }
    const std::string record = TakeRecord();
    EXPECT_EQ(record.find("[]"), record.npos) << i << ": " << record;
  }
}

}  // namespace
}  // namespace concert::daemon::cuda
