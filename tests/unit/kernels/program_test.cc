// How a program's arena is laid out, and what its ops touch. The rest of programs is seen from
// outside: tests/e2e/program_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "kernels/program/arena.h"
#include "kernels/program/compile.h"
#include "tests/support/seed.h"
#include "tests/unit/kernels/admit_fixture.h"

namespace concert::kernels {
namespace {

constexpr uint64_t kSlotBytes = 64 * 1024;

concert_program_slot Arena(uint64_t bytes = kSlotBytes) { return {CONCERT_SLOT_ARENA, 0, bytes}; }
concert_program_slot Binding(uint64_t bytes = kSlotBytes) {
  return {CONCERT_SLOT_BINDING, 0, bytes};
}

// 1 KiB from one handle to another.
concert_descriptor Copy(uint32_t src, uint32_t dst, uint64_t offset = 0) {
  concert_descriptor descriptor{};
  descriptor.kind = CONCERT_OP_COPY;
  descriptor.body.copy.src = {src, 0, offset};
  descriptor.body.copy.dst = {dst, 0, offset};
  descriptor.body.copy.bytes = 1024;
  return descriptor;
}

ProgramSource Source(const std::vector<concert_program_slot>& slots,
                     const std::vector<concert_descriptor>& ops) {
  return {.gpu = 0, .buffers = kBuffers, .slots = slots, .ops = ops};
}

std::string ErrorOf(const std::vector<concert_program_slot>& slots,
                    const std::vector<concert_descriptor>& ops) {
  return PlanArena(Source(slots, ops)).status().ToString();
}

TEST(ByteSetTest, RangesThatTouchAreOne) {
  ByteSet written;
  EXPECT_TRUE(written.Covers(5, 5));
  EXPECT_FALSE(written.Covers(0, 1));
  written.Add(10, 20);
  written.Add(30, 40);
  EXPECT_FALSE(written.Covers(10, 40));
  written.Add(20, 30);
  EXPECT_TRUE(written.Covers(10, 40));
  EXPECT_FALSE(written.Covers(9, 11));
  EXPECT_FALSE(written.Covers(39, 41));
}

TEST(ByteSetTest, AsAListOfBytesWouldSay) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  for (int round = 0; round < 200; ++round) {
    ByteSet written;
    std::vector<bool> bytes(64);
    for (int i = 0; i < 12; ++i) {
      const uint64_t begin = random() % 64, end = begin + random() % (65 - begin);
      const bool covered =
          std::all_of(bytes.begin() + static_cast<ptrdiff_t>(begin),
                      bytes.begin() + static_cast<ptrdiff_t>(end), [](bool byte) { return byte; });
      ASSERT_EQ(written.Covers(begin, end), covered);
      const bool overlapped =
          std::any_of(bytes.begin() + static_cast<ptrdiff_t>(begin),
                      bytes.begin() + static_cast<ptrdiff_t>(end), [](bool byte) { return byte; });
      ASSERT_EQ(written.Overlaps(begin, end), overlapped);
      if (random() % 2 == 0) continue;
      written.Add(begin, end);
      std::fill(bytes.begin() + static_cast<ptrdiff_t>(begin),
                bytes.begin() + static_cast<ptrdiff_t>(end), true);
    }
  }
}

TEST(PlaceSlotsTest, SlotsInUseTogetherLieApart) {
  std::mt19937 random(test::Seed());
  SCOPED_TRACE(testing::Message() << "seed " << test::Seed());
  for (int round = 0; round < 500; ++round) {
    std::vector<ArenaSlot> slots(random() % 40);
    for (ArenaSlot& slot : slots) {
      slot.bytes = 1 + random() % 5000;
      slot.first = random() % 50;
      slot.last = slot.first + random() % 10;
    }
    const uint64_t bytes = PlaceSlots(slots, 256);
    for (const ArenaSlot& a : slots) {
      ASSERT_EQ(a.offset % 256, 0u);
      ASSERT_LE(a.offset + a.bytes, bytes);
      for (const ArenaSlot& b : slots) {
        if (&a == &b || a.last < b.first || b.last < a.first) continue;
        ASSERT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
      }
    }
  }
}

TEST(PlaceSlotsTest, ThoseOfAChainShareTheMemoryOfTwo) {
  std::vector<ArenaSlot> slots;
  for (uint32_t i = 0; i < 20; ++i)
    slots.push_back({.bytes = 1024, .first = i, .last = i + 1, .offset = 0});
  EXPECT_EQ(PlaceSlots(slots, 256), 2048u);
}

TEST(ProgramTest, OpsGetAddressesAndTheRunTheirSum) {
  const std::vector<concert_program_slot> slots = {Binding(), Arena(), Arena()};
  const uint32_t binding = CONCERT_SLOT_HANDLE(0), first = CONCERT_SLOT_HANDLE(1),
                 second = CONCERT_SLOT_HANDLE(2);
  const std::vector<concert_descriptor> ops = {Copy(binding, first), Copy(first, second),
                                               Copy(second, 3), Copy(3, binding, 1024)};
  const ProgramSource source = Source(slots, ops);
  const absl::StatusOr<ArenaPlan> plan = PlanArena(source);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->bytes, 3 * kSlotBytes);
  const auto program = BindProgram(source, *plan, 0x40000000);
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ((*program)->ops.size(), 4u);
  ASSERT_EQ((*program)->bindings.size(), 1u);
  EXPECT_EQ((*program)->bindings[0].staged, (*program)->ops[0].copy.src);
  EXPECT_TRUE((*program)->bindings[0].written);
  EXPECT_EQ((*program)->ops[0].copy.dst, (*program)->ops[1].copy.src);
  EXPECT_EQ((*program)->ops[2].copy.dst, kBuffers[3].address);
  EXPECT_EQ((*program)->buffers, std::vector<uint32_t>{3});
  EXPECT_EQ((*program)->written, (ByteRange{kBuffers[3].address, kBuffers[3].address + 1024}));
  EXPECT_EQ((*program)->work.steps, 4u);
  EXPECT_EQ((*program)->work.hbm_bytes, 4 * 2048 + 4 * kSlotBytes);
}

TEST(ProgramTest, WhatIsReadMustHaveBeenWritten) {
  const uint32_t first = CONCERT_SLOT_HANDLE(0), second = CONCERT_SLOT_HANDLE(1);
  EXPECT_EQ(ErrorOf({Arena(), Arena()}, {Copy(1, first), Copy(first, second, 512)}),
            "INVALID_ARGUMENT: op 1, copy: src reads 1024 bytes at offset 512 of arena slot 0, of "
            "which no op before it has written all");
  EXPECT_EQ(
      ErrorOf({Arena(), Arena()}, {Copy(1, first), Copy(1, first, 1024), Copy(first, second, 512)}),
      "OK");
}

TEST(ProgramTest, RefusesWhatIsWrongWithAnOp) {
  EXPECT_EQ(ErrorOf({}, {Copy(1, 3), Copy(4, 3)}),
            "NOT_FOUND: op 1, copy: src.buffer is 4, which is not a buffer of this session; "
            "register it first");
  EXPECT_EQ(ErrorOf({Arena()}, {Copy(1, CONCERT_SLOT_HANDLE(1))}),
            "NOT_FOUND: op 0, copy: dst.buffer is 4293918721, which is not a buffer of this "
            "session; register it first");
  EXPECT_EQ(ErrorOf({Arena(512)}, {Copy(1, CONCERT_SLOT_HANDLE(0))}),
            "INVALID_ARGUMENT: op 0, copy: dst needs 1024 bytes at offset 0, but buffer 4293918720 "
            "has only 512 bytes");
  concert_descriptor waits = Copy(1, 3);
  waits.waits[2].value = 1;
  EXPECT_EQ(ErrorOf({}, {waits}),
            "INVALID_ARGUMENT: op 0, copy: a reserved field or flag of the copy descriptor is not "
            "zero; set it to zero or check the daemon's feature bits");
  concert_descriptor unknown{};
  unknown.kind = CONCERT_OP_KIND_COUNT + 1;
  EXPECT_NE(ErrorOf({}, {unknown}).find("which this daemon does not know"), std::string::npos);
  for (const uint16_t kind : {CONCERT_OP_ALL_REDUCE, CONCERT_OP_PROGRAM}) {
    concert_descriptor other{};
    other.kind = kind;
    EXPECT_NE(ErrorOf({}, {other}).find("cannot be part of a program; submit it by itself"),
              std::string::npos);
  }
}

std::string AdmitRun(const concert_descriptor& descriptor) {
  Op op;
  return FindOpKind(CONCERT_OP_PROGRAM)->admit(descriptor, Context(), op).ToString();
}

TEST(ProgramTest, ARunTouchesItsArenaItsBindingsAndSomeOfWhatOpsWrite) {
  Op op;
  ASSERT_TRUE(FindOpKind(CONCERT_OP_PROGRAM)->admit(GoodRun(), Context(), op).ok());
  const Accesses accesses = AccessesOf(op);
  ASSERT_EQ(accesses.list().size(), 3u);
  EXPECT_EQ(accesses.list()[0].memory.Bounds(), TheProgram().arena);
  EXPECT_EQ(accesses.list()[1].mode, AccessMode::kRead);
  EXPECT_EQ(accesses.list()[1].memory.Bounds(), (ByteRange{0x10000003, 0x10000103}));
  EXPECT_EQ(accesses.list()[2].mode, AccessMode::kReadWrite);
}

TEST(ProgramTest, RefusesBadRuns) {
  concert_descriptor run = GoodRun();
  run.body.program.program = 1;  // a buffer
  EXPECT_EQ(AdmitRun(run),
            "program is 1, which is not a program of this session; register it first");
  run = GoodRun();
  run.body.program.binding_count = 1;
  run.body.program.bindings[1] = {};
  EXPECT_EQ(AdmitRun(run), "binding_count is 1; it must be between 2 and 2");
  run = GoodRun();
  run.body.program.bindings[1].offset = kMiB - 1023;
  EXPECT_EQ(AdmitRun(run),
            "bindings[1] needs 1024 bytes at offset 1047553, but buffer 2 has only 1048576 bytes");
  run = GoodRun();
  run.body.program.bindings[0] = {};
  EXPECT_EQ(AdmitRun(run), "bindings[0] is required for this op but its buffer is 0");
  run = GoodRun();
  run.body.program.bindings[0].buffer = 8;  // no operand can be in a program
  EXPECT_EQ(AdmitRun(run),
            "bindings[0].buffer is 8, which is not a buffer of this session; register it first");
  run = GoodRun();
  run.body.program.bindings[2] = {1, 0, 0};
  EXPECT_NE(AdmitRun(run).find("a reserved field or flag of the program descriptor"),
            std::string::npos);
}

TEST(ProgramTest, RefusesWhatIsTooLarge) {
  EXPECT_EQ(ErrorOf({}, {}),
            "INVALID_ARGUMENT: the program has 0 ops; it must have between 1 and 10000");
  EXPECT_EQ(ErrorOf({}, std::vector<concert_descriptor>(10'001, Copy(1, 3))),
            "INVALID_ARGUMENT: the program has 10001 ops; it must have between 1 and 10000");
  EXPECT_EQ(ErrorOf(std::vector<concert_program_slot>(1025, Arena()), {Copy(1, 3)}),
            "INVALID_ARGUMENT: the program has 1025 slots; it may have 1024");
  EXPECT_EQ(ErrorOf(std::vector<concert_program_slot>(11, Binding()), {Copy(1, 3)}),
            "INVALID_ARGUMENT: the program has 11 bindings; it may have 10");
  EXPECT_EQ(ErrorOf({{3, 0, 1}}, {Copy(1, 3)}),
            "INVALID_ARGUMENT: role of slot 0 is 3; it must be 1 (arena) or 2 (binding)");
  for (const uint64_t bytes : {uint64_t{0}, kHuge}) {
    EXPECT_NE(ErrorOf({Arena(bytes)}, {Copy(1, 3)}).find("it must have between 1 and"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace concert::kernels
