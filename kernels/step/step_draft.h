// A plan in the making: ops with what they touch, some of which become part of others.
#ifndef CONCERT_KERNELS_STEP_STEP_DRAFT_H_
#define CONCERT_KERNELS_STEP_STEP_DRAFT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/access.h"
#include "kernels/program/program.h"
#include "kernels/step/step_plan.h"
#include "kernels/strided_range.h"

namespace concert::kernels {

struct Touch {
  StridedRange memory;
  uint32_t buffer;  // as Access::buffer
  concert_field field;
  bool reads, writes;
};

// `rows` rows of `columns` elements, `stride` elements apart.
StridedRange MatrixAt(Address begin, uint64_t rows, uint64_t columns, uint64_t stride);

// Whether a byte is in both, to the byte unless finding out takes long: then it says yes.
bool Overlap(const StridedRange& a, const StridedRange& b);

// What an op reads and writes, by its operands.
std::vector<Touch> TouchesOf(const Op& op);

// Whether one of them writes any of the memory.
bool AnyWrites(std::span<const Touch> touches, const StridedRange& memory);

// Which tokens of a cache there are, and where.
bool IsCacheTable(concert_field field);

// Whether rows of `columns` elements, `stride` apart, from `begin` on, are the heads of a rotary
// embedding's q, k and v, one behind the other, all in bf16.
bool AreHeads(const RopeAppendArgs& rope, Address begin, uint64_t columns, uint64_t stride);

// It stores its products and does nothing else with them.
bool IsPlain(const StepGemm& gemm);

// A GEMM without anything folded into it. REQUIRES: its strides fit 32 bits.
StepGemm StepGemmOf(const GemmArgs& gemm);

// Of D; of kRope those of q alone, since the others go to the cache.
uint32_t ColumnsOfD(const StepGemm& gemm);

struct Draft {
  PlannedStage stage;
  std::vector<Touch> touches;
  bool gone = false;  // part of another

  bool Reads(const StridedRange& memory) const;
  bool Writes(const StridedRange& memory) const;
  // The buffer of what touches exactly this memory.
  uint32_t BufferOf(const StridedRange& memory) const;
  // Replaces what touches exactly this memory by `touch`; without any, by nothing.
  void Replace(const StridedRange& memory, const Touch& touch);
};

class StepDraft {
 public:
  // A draft for each op of the program, as it is.
  explicit StepDraft(const Program& program) : program_(program) {}

  std::vector<Draft>& drafts() { return drafts_; }

  // It belongs to the arena and to no binding: nobody looks at them after the run.
  bool IsIntermediate(const StridedRange& memory) const;
  // Nobody behind draft `index` reads what slot `buffer` holds there now. That other slots lie
  // there later does not matter: they are read only where they have been written.
  bool IsDeadBehind(size_t index, const StridedRange& memory, uint32_t buffer) const;
  // The draft of the op that follows op `op` in the program, unless it is part of another. Null:
  // there is none.
  Draft* FollowerOf(uint32_t op);
  size_t IndexOf(const Draft& draft) const { return static_cast<size_t>(&draft - drafts_.data()); }

 private:
  const Program& program_;
  std::vector<Draft> drafts_;
};

// What the exchange holds so far.
class ExchangeSpace {
 public:
  explicit ExchangeSpace(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Where a dense matrix of bf16 goes; nullopt: it does not fit.
  std::optional<Address> Take(uint64_t rows, uint64_t columns);
  uint64_t bytes() const { return bytes_; }

 private:
  const uint64_t bytes_max_;
  uint64_t bytes_ = 0;
};

// Lets results go through the exchange where their readers can look for them there
// (kernels/step/step_exchange.cc). REQUIRES: no draft is gone; the first copies bindings in.
void Exchange(StepDraft& drafts, ExchangeSpace& space);

// The same for what makes q and appends to a cache, and the attention that reads both
// (kernels/step/step_heads.cc). Comes first.
void ExchangeHeads(StepDraft& drafts, ExchangeSpace& space);

// The touch of a draft that is its op's `field`.
std::vector<Touch>::iterator TouchOf(Draft& draft, concert_field field);

// Whether `rope`, which comes later and whose heads are some of what `gemm` makes (`made`), may be
// done by that at once: nobody reads k and v as they are there, and what it writes besides is
// nothing that the GEMM reads.
bool MayRotate(const StepDraft& drafts, const Draft& gemm, Draft& rope, const StridedRange& made);

// Makes residual adds, norms and gates part of the GEMMs beside them (kernels/step/step_fold.cc).
void FoldIntoGemms(StepDraft& drafts);
// Lets GEMMs read what was copied instead of the copy. Behind FoldIntoGemms: norms read it, too.
void FoldCopies(StepDraft& drafts);
// All of these, and rotary embeddings with the append of k and v.
void Fold(StepDraft& drafts);

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_STEP_STEP_DRAFT_H_
