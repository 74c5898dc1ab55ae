// Copies of operands for group launches: where they are placed, and the kernel's own code run on
// the host, thread by thread.
#include "kernels/group/repack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/group/repack_list.h"
#include "tests/support/seed.h"

namespace concert::kernels::cuda {
namespace {

constexpr Address kScratch = uint64_t{7} << 32;

// Memory in pieces, so that a read that leaves the pieces of a matrix leaves the vector.
class Memory {
 public:
  explicit Memory(uint64_t bytes) : pieces_((bytes + kRepackPieceBytes - 1) / kRepackPieceBytes) {}

  uint64_t address() { return reinterpret_cast<uint64_t>(pieces_.data()); }
  std::span<uint8_t> bytes() {
    return {reinterpret_cast<uint8_t*>(pieces_.data()), pieces_.size() * kRepackPieceBytes};
  }

 private:
  std::vector<RepackPiece> pieces_;
};

void RunOnHost(std::span<const RepackArgs> launches) {
  for (const RepackArgs& args : launches) {
    for (uint32_t block = 0; block < args.blocks; ++block) {
      for (uint32_t thread = 0; thread < kRepackThreads; ++thread) Repack(args, block, thread);
    }
  }
}

GemmArgs Gemm(uint32_t m, uint32_t n, uint32_t k) {
  GemmArgs gemm{};
  gemm.m = m, gemm.n = n, gemm.k = k, gemm.batch = 1;
  gemm.lda = gemm.ldw = k, gemm.ldd = (n + 7) / 8 * 8;
  gemm.dtype = gemm.d_dtype = Dtype::kBf16;
  return gemm;
}

TEST(RepackTest, RealignsByAnyNumberOfBytes) {
  RepackPiece pieces[2];
  auto* bytes = reinterpret_cast<uint8_t*>(pieces);
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<uint8_t>(i);
  for (uint32_t shift = 0; shift < kRepackPieceBytes; ++shift) {
    const RepackPiece piece = Realign(pieces[0], pieces[1], shift);
    EXPECT_EQ(std::memcmp(&piece, bytes + shift, sizeof(piece)), 0) << "shift " << shift;
  }
}

// Every offset within a piece, rows of every length around whole pieces, strides that move rows
// through all offsets; many matrices in a launch. Under AddressSanitizer also: nothing is read
// beyond the pieces of the matrix.
TEST(RepackTest, CopiesEveryElementAndNothingElse) {
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  std::mt19937 random(test::Seed());
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp8E4m3}) {
    const uint32_t element = DtypeBytes(dtype);
    std::vector<GemmArgs> gemms;
    std::vector<Memory> sources;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < 200; ++i) {
      GemmArgs gemm = Gemm(1 + random() % 70, 1 + random() % 70, 1 + (i * 7) % 120);
      gemm.dtype = dtype;
      gemm.lda = gemm.k + random() % 40, gemm.ldw = gemm.k + random() % 3;
      const uint64_t offset = i % (kRepackPieceBytes / element) * element;
      // Both begin in the first piece of their memory and end in the last.
      const uint64_t a_bytes = ((gemm.m - 1) * gemm.lda + gemm.k) * element;
      const uint64_t w_bytes = ((gemm.n - 1) * gemm.ldw + gemm.k) * element;
      gemm.a = sources.emplace_back(offset + a_bytes).address() + offset;
      gemm.w = sources.emplace_back(offset + w_bytes).address() + offset;
      gemm.d = kScratch;
      gemm.d_dtype = Dtype::kBf16;
      for (Memory* source : {&sources[2 * i], &sources[2 * i + 1]}) {
        for (uint8_t& byte : source->bytes()) byte = static_cast<uint8_t>(random());
      }
      bytes += *GroupRepackBytes(gemm);
      gemms.push_back(gemm);
    }
    constexpr uint8_t kUntouched = 0xa5;
    Memory scratch(bytes + kRepackAlignment);
    std::fill(scratch.bytes().begin(), scratch.bytes().end(), kUntouched);
    RepackList list;
    list.Start(scratch.address());
    std::vector<GemmArgs> repacked;
    for (const GemmArgs& gemm : gemms) repacked.push_back(list.Add(gemm));
    EXPECT_GT(list.launches().size(), 1u);
    RunOnHost(list.launches());
    for (size_t i = 0; i < gemms.size(); ++i) {
      SCOPED_TRACE("GEMM " + std::to_string(i));
      const auto check = [element](const GroupOperand& from, const GroupOperand& to) {
        for (uint64_t row = 0; row < from.rows; ++row) {
          const auto at = [&](const GroupOperand& operand) {
            return reinterpret_cast<const void*>(operand.begin +
                                                 row * operand.row_stride * element);
          };
          ASSERT_EQ(std::memcmp(at(from), at(to), from.columns * element), 0) << "row " << row;
          if (from.begin == to.begin) continue;
          // Nor is anything read for what pads the row.
          const auto* const copied = static_cast<const uint8_t*>(at(to));
          const uint64_t pieces = (from.columns * element - 1) / kRepackPieceBytes + 1;
          ASSERT_TRUE(std::all_of(copied + pieces * kRepackPieceBytes,
                                  copied + to.row_stride * element,
                                  [](uint8_t b) { return b == kUntouched; }))
              << "row " << row;
        }
      };
      check(GroupOperand::A(gemms[i]), GroupOperand::A(repacked[i]));
      check(GroupOperand::W(gemms[i]), GroupOperand::W(repacked[i]));
    }
    const std::span<uint8_t> behind = scratch.bytes().subspan(bytes);
    EXPECT_TRUE(
        std::all_of(behind.begin(), behind.end(), [](uint8_t b) { return b == kUntouched; }));
  }
}

TEST(RepackListTest, LeavesWhatTensorMapsTake) {
  RepackList list;
  list.Start(kScratch);
  GemmArgs gemm = Gemm(64, 64, 479);
  gemm.lda = 480;
  gemm.a = gemm.w = gemm.d = uint64_t{1} << 40;
  const GemmArgs repacked = list.Add(gemm);
  EXPECT_EQ(repacked.a, gemm.a);
  EXPECT_EQ(repacked.lda, gemm.lda);
  EXPECT_EQ(repacked.w, kScratch);
  EXPECT_EQ(repacked.ldw, 512u);
  ASSERT_EQ(list.launches().size(), 1u);
  EXPECT_EQ(list.launches()[0].matrices[0].from, gemm.w);
  EXPECT_EQ(list.launches()[0].first_block[1], UINT32_MAX);
  gemm.ldw = 480;
  list.Start(kScratch);
  EXPECT_EQ(list.Add(gemm).w, gemm.w);
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.launches().empty());
}

// As many GEMMs as a launch takes, of any sizes that fill the scratch.
TEST(RepackListTest, CopiesLieApartWithinWhatAdmissionCounts) {
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  std::mt19937 random(test::Seed());
  RepackList list;
  list.Start(kScratch);
  std::vector<GroupOperand> copies;
  uint64_t bytes = 0;
  for (int i = 0; i < kernels::kMaxGroupProblems; ++i) {
    GemmArgs gemm = Gemm(1 + random() % 100, 1 + random() % 100, 1 + 2 * (random() % 250));
    gemm.a = 2 * (random() % 8), gemm.w = 2 * (random() % 8);
    const GemmArgs repacked = list.Add(gemm);
    for (const GroupOperand& copy : {GroupOperand::A(repacked), GroupOperand::W(repacked)}) {
      EXPECT_TRUE(copy.MapTakes());
      EXPECT_EQ(copy.begin % kRepackAlignment, 0u);
      EXPECT_GE(copy.row_stride, copy.columns);
      copies.push_back(copy);
    }
    bytes += *GroupRepackBytes(gemm);
  }
  ASSERT_LE(bytes, kernels::kGroupRepackBytes);
  std::sort(copies.begin(), copies.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  uint64_t end = kScratch;
  for (const GroupOperand& copy : copies) {
    EXPECT_GE(copy.begin, end);
    end = copy.begin + copy.rows * copy.row_stride * copy.element_bytes;
  }
  EXPECT_LE(end, kScratch + bytes);
}

TEST(RepackListTest, TheSameLaunchHasTheSamePlaces) {
  RepackList list;
  GemmArgs gemm = Gemm(100, 50, 33);
  gemm.a = 2;
  std::vector<Address> first;
  for (int turn = 0; turn < 2; ++turn) {
    list.Start(kScratch);
    for (size_t i = 0; i < 70; ++i) {
      const GemmArgs repacked = list.Add(gemm);
      if (turn == 0) first.push_back(repacked.a);
      EXPECT_EQ(repacked.a, first[i]);
    }
    EXPECT_EQ(list.launches().size(), 3u);
  }
}

TEST(GroupOperandTest, AGemmMayFillTheScratchButNotMore) {
  GemmArgs gemm = Gemm(65536, 64, 1024);  // A: all of it
  gemm.a = 2;
  EXPECT_EQ(GroupRepackBytes(gemm), kernels::kGroupRepackBytes);
  gemm.m = 65537;
  EXPECT_EQ(GroupRepackBytes(gemm), std::nullopt);
  gemm.a = 0;
  EXPECT_EQ(GroupRepackBytes(gemm), 0u);
  gemm = Gemm(1 << 24, 1 << 24, 1 << 24);
  gemm.a = gemm.w = 2;
  EXPECT_EQ(GroupRepackBytes(gemm), std::nullopt);
}

}  // namespace
}  // namespace concert::kernels::cuda
