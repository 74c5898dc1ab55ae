// Copies matrices whose rows or addresses no tensor map takes into rows that one does. Shared by
// host and device code: tests run it on the host, thread by thread.
#ifndef CONCERT_KERNELS_GROUP_REPACK_H_
#define CONCERT_KERNELS_GROUP_REPACK_H_

#include <cstdint>

#ifdef __CUDACC__
#define CONCERT_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CONCERT_HOST_DEVICE inline
#endif

namespace concert::kernels::cuda {

// What one thread copies. Reads and writes are whole, aligned pieces of this many bytes.
inline constexpr uint32_t kRepackPieceBytes = 16;
inline constexpr uint32_t kRepackThreads = 256;
inline constexpr int kRepackMatrices = 64;  // of one launch; a power of two

// One matrix. The copy's rows are pieces_per_row whole pieces long, of which those that begin
// behind row_bytes are left as they are; what else lies behind row_bytes means nothing.
struct RepackMatrix {
  uint64_t from;         // address; any
  uint64_t from_stride;  // bytes from row to row; any
  uint64_t to;           // a multiple of kRepackPieceBytes
  uint32_t row_bytes;    // at least 1
  uint32_t pieces_per_row;
  uint32_t pieces;  // of all rows
  uint32_t reserved;
};
static_assert(sizeof(RepackMatrix) == 40);

// The kernel's only parameter. Each matrix has blocks of its own.
struct RepackArgs {
  // Ascending from 0; UINT32_MAX where there is no matrix.
  uint32_t first_block[kRepackMatrices];
  uint32_t blocks;  // in all
  RepackMatrix matrices[kRepackMatrices];
};
static_assert(sizeof(RepackArgs) <= 4096);  // what every driver takes as parameters

struct alignas(kRepackPieceBytes) RepackPiece {
  uint32_t words[4];
};

// Bytes [shift, shift + 16) of `low` and the `high` behind it, shift < 16.
CONCERT_HOST_DEVICE RepackPiece Realign(const RepackPiece& low, const RepackPiece& high,
                                        uint32_t shift) {
  uint32_t words[8];
  for (int i = 0; i < 4; ++i) words[i] = low.words[i], words[i + 4] = high.words[i];
  for (int i = 0; i < 6; ++i) words[i] = shift & 8 ? words[i + 2] : words[i];
  for (int i = 0; i < 5; ++i) words[i] = shift & 4 ? words[i + 1] : words[i];
  const uint32_t bits = (shift & 3) * 8;
  RepackPiece piece;
  for (int i = 0; i < 4; ++i) {
    piece.words[i] = static_cast<uint32_t>((uint64_t{words[i + 1]} << 32 | words[i]) >> bits);
  }
  return piece;
}

// One thread of one block. Reads no piece that holds no byte of the matrix, so that it stays within
// the pages of the matrix; neighbours' bytes in those pieces are read and dropped.
CONCERT_HOST_DEVICE void Repack(const RepackArgs& args, uint32_t block, uint32_t thread) {
  int index = 0;  // the last matrix that begins no later than this block
  for (int step = kRepackMatrices / 2; step > 0; step /= 2) {
    if (block >= args.first_block[index + step]) index += step;
  }
  const RepackMatrix& matrix = args.matrices[index];
  const uint32_t piece = (block - args.first_block[index]) * kRepackThreads + thread;
  if (piece >= matrix.pieces) return;
  const uint32_t row = piece / matrix.pieces_per_row;
  const uint32_t column = (piece - row * matrix.pieces_per_row) * kRepackPieceBytes;  // bytes
  if (column >= matrix.row_bytes) return;
  const uint32_t left = matrix.row_bytes - column;
  const uint64_t from = matrix.from + row * matrix.from_stride + column;
  const uint32_t shift = from % kRepackPieceBytes;
  const auto* source = reinterpret_cast<const RepackPiece*>(from - shift);
  const RepackPiece low = source[0];
  RepackPiece high = {};
  if (shift > 0 && shift + left > kRepackPieceBytes) high = source[1];
  reinterpret_cast<RepackPiece*>(matrix.to)[piece] = Realign(low, high, shift);
}

}  // namespace concert::kernels::cuda

#endif  // CONCERT_KERNELS_GROUP_REPACK_H_
