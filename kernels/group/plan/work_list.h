// The work list of one group launch: which block computes which tile of which problem, and when.
// Data made by GroupCompiler, interpreted by the group kernel. Plain C++ that device code includes
// too.
//
// The group kernel computes D^T = W * A^T, so that the rows of the tensor cores' instruction are
// rows of W and its columns rows of A: however few rows A has, no instruction row is wasted.
#ifndef CONCERT_KERNELS_GROUP_PLAN_WORK_LIST_H_
#define CONCERT_KERNELS_GROUP_PLAN_WORK_LIST_H_

#include <cstdint>
#include <span>

#include "policies/seam/work_list.h"

namespace concert::kernels {

inline constexpr int kMaxGroupProblems = 256;
inline constexpr int kMaxGroupItems = 16384;           // of one launch, kEnd items included; 256 KB
inline constexpr uint32_t kGroupArenaItems = 1 << 20;  // of all work lists that are kept; 16 MB
inline constexpr int kWorkListSlots = 1024;
// Group launches whose ops have not all been seen finished. A device keeps what as many launches
// use, and a few more, because a launch's last block ends after its last op's signal.
inline constexpr int kMaxGroupLaunches = 60;
// How many launches ago on its lane the op may have been launched that an op of a group follows.
inline constexpr int kMaxGroupPredecessors = 3;
inline constexpr int kGroupStoreShift = 40;
// Parts of the fp32 sums that split tiles meet in, in bytes: each lane has one such workspace.
inline constexpr uint64_t kGroupPartialBytes = 32 << 20;
// Copies that one launch can make of operands whose rows or addresses tensor maps do not take; each
// lane has one such scratch. Filling it takes some 100 us; the libraries' kernels for such rows
// take 4 to 7 times as long as others (ADR 3).
inline constexpr uint64_t kGroupRepackBytes = 128 << 20;
inline constexpr int kMaxGroupSplitTiles = 4096;  // tiles that are split along K, each a counter
inline constexpr int kMaxGroupSplits = 32;        // parts of one tile

// Rows of W times rows of A. Every combination of the two lists below is one specialisation of the
// kernel.
struct GroupTile {
  uint16_t w_rows = 128;
  uint16_t a_rows = 64;
  friend constexpr bool operator==(GroupTile a, GroupTile b) {
    return a.w_rows == b.w_rows && a.a_rows == b.a_rows;
  }
};
// w_rows 128: each of the two consumer warpgroups takes 64 rows of W and all rows of A.
// w_rows 64: both take the same 64 rows of W and half of the rows of A each.
inline constexpr GroupTile kGroupTiles[] = {{128, 16},  {128, 32},  {128, 64},  {128, 96},
                                            {128, 128}, {128, 192}, {128, 256}, {64, 32},
                                            {64, 64},   {64, 128},  {64, 192},  {64, 256}};
// The tiles of pairs of blocks on neighbouring SMs (GroupBlocks::kPairs): each block computes 128
// of the rows of W, as with w_rows 128, and loads half of the rows of A for both.
inline constexpr GroupTile kGroupPairTiles[] = {
    {256, 32}, {256, 64}, {256, 128}, {256, 192}, {256, 256}};
constexpr int BlocksPerTile(GroupTile tile) { return tile.w_rows == 256 ? 2 : 1; }
// Rows of A that a consumer warpgroup multiplies with its 64 of W.
constexpr int WarpgroupRows(GroupTile tile) {
  return tile.w_rows == 64 ? tile.a_rows / 2 : tile.a_rows;
}
// Whether the sums of a tile fit half of an SM's registers (GroupBlocks::kNarrow).
inline constexpr int kNarrowWarpgroupRows = 64;
constexpr bool IsNarrow(GroupTile tile) { return WarpgroupRows(tile) <= kNarrowWarpgroupRows; }
// Rows of A that a consumer warpgroup hands over for one store: as many as fit its buffer.
constexpr int GroupStoreRows(GroupTile tile) {
  const int rows = WarpgroupRows(tile);
  return rows > 128 ? rows / 2 : rows;
}
// The rows of A that the last tile of a problem along A computes: those of the smallest tile of
// `tiles` with as many rows of W that will do and is stored at once, else all.
constexpr int TailRows(std::span<const GroupTile> tiles, GroupTile tile, uint32_t m) {
  const uint32_t left = (m - 1) % tile.a_rows + 1;
  int rows = tile.a_rows;
  for (const GroupTile other : tiles) {
    if (tile.w_rows == 64 || other.w_rows != tile.w_rows) continue;
    const bool stored_at_once = other.a_rows <= GroupStoreRows(tile);
    if (stored_at_once && other.a_rows >= left && other.a_rows < rows) rows = other.a_rows;
  }
  return rows;
}
inline constexpr int kGroupBlockKBytes = 128;  // of K per pipeline stage: 64 bf16 or 128 fp8
// Of a row of A or W: items name K in 16 bits.
inline constexpr uint32_t kGroupMaxKBytes = UINT16_MAX * kGroupBlockKBytes;

// One tile, or a part of its sum along K. Blocks work through their items in order.
struct GroupItem {
  static constexpr uint16_t kEnd = 0xffff;  // in `problem`: the block has no more items

  uint16_t problem;           // index into the launch's problems
  uint8_t w_rows_div_64 : 4;  // tile: 1, 2 or, of pairs, 4
  // 0: all rows of the tile are computed. Else only as many, which are rows of another tile with as
  // many rows of W: enough for the last tile along A, which is loaded as if it were full.
  uint8_t tail_rows_div_16 : 4;
  uint8_t a_rows_div_16;    // tile: 1 to 16
  uint16_t w_tile, a_tile;  // which tile
  uint16_t k_begin, k_end;  // in units of kGroupBlockKBytes; k_begin < k_end
  uint8_t splits;           // parts of this tile's sum: 1, or how many items share it
  uint8_t split;            // which part this is
  uint16_t split_tile;      // splits > 1: which counter and partial sums the parts meet in
};
static_assert(sizeof(GroupItem) == 16);

// What a launch's blocks are. A kernel for each.
enum class GroupBlocks : uint8_t {
  kWide,    // each has an SM for itself
  kNarrow,  // each takes half of an SM, so that those of the next launch lie beside them; all tiles
            // are IsNarrow()
  kPairs,   // two with an SM each share what they load; all tiles are of kGroupPairTiles
};

// A view; WorkListStore owns what it points to. Where blocks are pairs, `blocks` counts pairs.
//
// Item s of block b is items[s * blocks + b]; every block has a kEnd item after its last.
// The parts of a split tile t have their sums in fp32 at partial (t * max_splits + split), each
// partial_bytes long, so that max_splits * split_tiles * partial_bytes <= kGroupPartialBytes.
struct GroupWorkList : policies::WorkList {
  // Never used again for other items; 0: none. The bits above kGroupStoreShift name the store, in
  // whose arena `first_item` counts.
  uint64_t id = 0;
  uint16_t slot = 0;        // in [0, kWorkListSlots)
  uint32_t first_item = 0;  // where its items lie among kGroupArenaItems, so that a device can keep
                            // a copy of the store's arena
  uint16_t blocks = 0;
  uint16_t problem_count = 0;
  uint16_t split_tiles = 0;
  uint16_t max_splits = 1;
  GroupBlocks kind = GroupBlocks::kWide;
  uint32_t partial_bytes = 0;  // of the largest tile that is split
  uint32_t item_count = 0;     // kEnd items included: steps * blocks
  const GroupItem* items = nullptr;
  const GroupTile* tiles = nullptr;  // [problem_count]

  // Of a plan whose lists GroupCompiler has made.
  static const GroupWorkList* Of(const policies::WorkList* list) {
    return static_cast<const GroupWorkList*>(list);
  }

  // How many blocks are launched.
  int grid() const { return kind == GroupBlocks::kPairs ? 2 * blocks : blocks; }
};

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_GROUP_PLAN_WORK_LIST_H_
