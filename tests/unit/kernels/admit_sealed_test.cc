// Admission knows for every kind which operands an op writes, and lets none of them be sealed.
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <vector>

#include "kernels/op_table.h"
#include "tests/unit/kernels/admit_fixture.h"

namespace concert::kernels {
namespace {

// One of each kind, with all the operands it may have.
std::vector<concert_descriptor> OneOfEachKind() {
  std::vector<concert_descriptor> descriptors = {GoodGemm(),
                                                 GoodFp8Gemm(),
                                                 GoodCopy(),
                                                 GoodRmsNorm(),
                                                 GoodGatedActivation(),
                                                 GoodEmbedding(),
                                                 GoodArgmax(),
                                                 GoodRopeAppend(),
                                                 GoodAttentionDecode(),
                                                 GoodLayerNorm(),
                                                 GoodElementwise(),
                                                 GoodAdvance(),
                                                 GoodQuantize(),
                                                 GoodSample(),
                                                 GoodRun(),
                                                 GoodAttentionPrefill()};
  for (uint16_t kind = CONCERT_OP_ALL_REDUCE; kind <= CONCERT_OP_BARRIER; ++kind)
    descriptors.push_back(GoodCollective(kind));
  return descriptors;
}

Failure Admit(const concert_descriptor& descriptor, std::span<const BufferRange> buffers, Op& op) {
  op.kind = descriptor.kind;
  return FindOpKind(descriptor.kind)
      ->admit(descriptor, {.gpu = 0, .buffers = buffers, .ranks = 2}, op);
}

TEST(AdmitSealedTest, CoversAllKinds) {
  std::set<uint16_t> kinds;
  for (const concert_descriptor& descriptor : OneOfEachKind()) kinds.insert(descriptor.kind);
  EXPECT_EQ(kinds.size(), AllOpKinds().size());
}

TEST(AdmitSealedTest, OpsReadSealedBuffersAndAreRefusedWhereTheyWriteOne) {
  for (const concert_descriptor& descriptor : OneOfEachKind()) {
    SCOPED_TRACE(concert_op_kind_name(descriptor.kind));
    Op open;
    ASSERT_TRUE(Admit(descriptor, kBuffers, open).ok());
    const Accesses accesses = AccessesOf(open);
    for (uint32_t sealed = 1; sealed < kBuffers.size(); ++sealed) {
      std::set<uint64_t> written;  // fields
      for (const Access& access : accesses.list()) {
        if (access.buffer == sealed && access.writes()) written.insert(access.field);
      }
      written.erase(CONCERT_FIELD_PROGRAM);  // its arena, which is no buffer
      auto buffers = kBuffers;
      buffers[sealed].sealed = true;
      Op op;
      const Failure failure = Admit(descriptor, buffers, op);
      ASSERT_EQ(failure.ok(), written.empty()) << "buffer " << sealed << ": " << failure.ToString();
      if (failure.ok()) continue;
      EXPECT_EQ(failure.status, CONCERT_ABI_FAILED_PRECONDITION);
      EXPECT_EQ(failure.message, CONCERT_MESSAGE_SEALED);
      EXPECT_TRUE(written.contains(failure.args[0])) << failure.ToString();
      EXPECT_EQ(failure.args[1], sealed);
    }
  }
}

TEST(AdmitSealedTest, TheSentenceNamesFieldAndBuffer) {
  auto buffers = kBuffers;
  buffers[3].sealed = true;
  Op op;
  EXPECT_EQ(Admit(GoodGemm(), buffers, op).ToString(),
            "d lies in buffer 3, which is sealed: ops only read it; write to another buffer");
}

}  // namespace
}  // namespace concert::kernels
