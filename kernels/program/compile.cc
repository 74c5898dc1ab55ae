#include "kernels/program/compile.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

constexpr uint64_t kMaxSlotBytes = uint64_t{1} << 46;  // as a buffer's; 1,024 of them fit 63 bits

// All of the first two lines but the kind: a program's ops have no tickets and wait for nothing.
bool HeaderIsZero(const concert_descriptor& descriptor) {
  concert_descriptor copy = descriptor;
  copy.kind = 0;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&copy);
  return std::all_of(bytes, bytes + offsetof(concert_descriptor, body),
                     [](uint8_t byte) { return byte == 0; });
}

absl::Status ErrorOf(size_t index, uint16_t kind, const Failure& failure) {
  return {static_cast<absl::StatusCode>(failure.status),
          absl::StrCat("op ", index, ", ", concert_op_kind_name(kind), ": ", failure.ToString())};
}

std::vector<BufferRange> SlotRanges(const ProgramSource& source,
                                    std::span<const uint64_t> addresses) {
  std::vector<BufferRange> ranges;
  for (size_t i = 0; i < source.slots.size(); ++i) {
    ranges.push_back({.address = addresses[i], .bytes = source.slots[i].bytes, .gpu = source.gpu});
  }
  return ranges;
}

absl::Status CheckSlot(size_t index, const concert_program_slot& slot) {
  if (slot.role != CONCERT_SLOT_ARENA && slot.role != CONCERT_SLOT_BINDING) {
    return absl::InvalidArgumentError(absl::StrCat("role of slot ", index, " is ", slot.role,
                                                   "; it must be 1 (arena) or 2 (binding)"));
  }
  if (slot.bytes == 0 || slot.bytes > kMaxSlotBytes || slot.reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", index, " has ", slot.bytes, " bytes; it must have between 1 and ",
                     kMaxSlotBytes, ", and its reserved field must be 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckSizes(const ProgramSource& source) {
  if (source.ops.empty() || source.ops.size() > CONCERT_MAX_PROGRAM_OPS) {
    return absl::InvalidArgumentError(absl::StrCat("the program has ", source.ops.size(),
                                                   " ops; it must have between 1 and ",
                                                   int{CONCERT_MAX_PROGRAM_OPS}));
  }
  if (source.slots.size() > CONCERT_MAX_PROGRAM_SLOTS) {
    return absl::InvalidArgumentError(absl::StrCat("the program has ", source.slots.size(),
                                                   " slots; it may have ",
                                                   int{CONCERT_MAX_PROGRAM_SLOTS}));
  }
  size_t bindings = 0;
  for (size_t i = 0; i < source.slots.size(); ++i) {
    if (absl::Status status = CheckSlot(i, source.slots[i]); !status.ok()) return status;
    bindings += source.slots[i].role == CONCERT_SLOT_BINDING ? 1 : 0;
  }
  if (bindings <= CONCERT_MAX_BINDINGS) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the program has ", bindings, " bindings; it may have ", int{CONCERT_MAX_BINDINGS}));
}

// What the ops of a program do with its slots, op by op.
class SlotUses {
 public:
  SlotUses(std::span<const concert_program_slot> slots, std::span<const uint64_t> addresses)
      : addresses_(addresses), written_(slots.size()), uses_(slots.size()) {
    for (size_t i = 0; i < slots.size(); ++i) {
      // Bindings are copied in before the first op and out behind the last.
      constexpr uint32_t kEnd = CONCERT_MAX_PROGRAM_OPS;
      const bool binding = slots[i].role == CONCERT_SLOT_BINDING;
      uses_[i] = {.bytes = slots[i].bytes, .first = binding ? 0 : kEnd, .last = binding ? kEnd : 0};
      if (binding) written_[i].Add(0, slots[i].bytes);
    }
  }

  // The next op's. Fails if it reads what has not been written.
  Failure Add(uint32_t index, const Accesses& accesses) {
    for (const Access& access : accesses.list()) {
      if (!InSlot(access)) continue;
      const uint32_t slot = SlotOf(access);
      uses_[slot].first = std::min(uses_[slot].first, index);
      uses_[slot].last = std::max(uses_[slot].last, index);
      if (access.mode == AccessMode::kWrite) continue;
      const ByteRange read = access.memory.Bounds();
      const uint64_t begin = read.begin - addresses_[slot], end = read.end - addresses_[slot];
      if (written_[slot].Covers(begin, end)) continue;
      return InvalidArgument(CONCERT_MESSAGE_ARENA_NOT_WRITTEN, access.field, end - begin, begin,
                             slot);
    }
    for (const Access& access : accesses.list()) {
      if (!InSlot(access) || !access.writes()) continue;
      const ByteRange range = access.memory.Bounds();
      const Address base = addresses_[SlotOf(access)];
      written_[SlotOf(access)].Add(range.begin - base, range.end - base);
    }
    return {};
  }
  std::span<ArenaSlot> uses() { return uses_; }

 private:
  std::span<const uint64_t> addresses_;
  std::vector<ByteSet> written_;  // as far as that is known
  std::vector<ArenaSlot> uses_;
};

// Notes what an op touches outside of the arena.
void NoteAccesses(const Accesses& accesses, Program& program, std::vector<int>& binding_of_slot) {
  for (const Access& access : accesses.list()) {
    if (!InSlot(access)) {
      program.buffers.push_back(access.buffer);
      if (access.writes()) program.written.Extend(access.memory.Bounds());
    } else if (const int binding = binding_of_slot[SlotOf(access)];
               binding >= 0 && access.writes()) {
      program.bindings[static_cast<size_t>(binding)].written = true;
    }
  }
}

// As if ops took turns in all that a run occupies: bytes and FLOPs of all, on as many SMs as the
// widest has use for, and each at least as long as a kernel takes.
policies::Work WorkOf(const Program& program) {
  policies::Work work;
  for (const Op& op : program.ops) {
    const uint64_t tiles = uint64_t{op.work.n / 64 + 1} * (op.work.m / 64 + 1);
    const uint64_t blocks = op.work.is_gemm() ? tiles * op.work.batch : op.work.m;
    work.m = static_cast<uint32_t>(std::max<uint64_t>(work.m, std::min<uint64_t>(blocks, 1 << 16)));
    work.flops = SaturatingAdd(work.flops, op.work.flops);
    work.hbm_bytes = SaturatingAdd(work.hbm_bytes, op.work.hbm_bytes);
  }
  for (const Program::Binding& binding : program.bindings) {
    work.hbm_bytes =
        SaturatingAdd(work.hbm_bytes, SaturatingMultiply(binding.written ? 4 : 2, binding.bytes));
  }
  work.m = std::max(work.m, 1u);
  work.n = 1;
  work.steps = static_cast<uint32_t>(program.ops.size());
  return work;
}

// Where slots lie while the arena has no memory.
std::vector<Address> UnplacedAddresses(std::span<const concert_program_slot> slots) {
  std::vector<Address> addresses;
  Address next = kUnplacedArena;
  for (const concert_program_slot& slot : slots) {
    addresses.push_back(next);
    next += AlignedInArena(slot.bytes);
  }
  return addresses;
}

}  // namespace

Failure AdmitStep(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const OpKind* kind = FindOpKind(descriptor.kind);
  if (kind == nullptr) return UnknownKind(descriptor.kind);
  CONCERT_RETURN_IF_FAILED(CheckReserved(descriptor, HeaderIsZero(descriptor)));
  if (!ProgramsHold(descriptor.kind)) {
    return {CONCERT_ABI_UNIMPLEMENTED, CONCERT_MESSAGE_NOT_IN_PROGRAM, {descriptor.kind}};
  }
  op.kind = descriptor.kind;
  return kind->admit(descriptor, context, op);
}

absl::StatusOr<ArenaPlan> PlanArena(const ProgramSource& source) {
  if (absl::Status status = CheckSizes(source); !status.ok()) return status;
  const std::vector<Address> addresses = UnplacedAddresses(source.slots);
  const std::vector<BufferRange> ranges = SlotRanges(source, addresses);
  const AdmitContext context{.gpu = source.gpu, .buffers = source.buffers, .slots = ranges};
  SlotUses uses(source.slots, addresses);
  for (size_t i = 0; i < source.ops.size(); ++i) {
    Op op;
    Failure failure = AdmitStep(source.ops[i], context, op);
    if (failure.ok()) failure = uses.Add(static_cast<uint32_t>(i), AccessesOf(op));
    if (!failure.ok()) return ErrorOf(i, source.ops[i].kind, failure);
  }
  ArenaPlan plan;
  plan.bytes = PlaceSlots(uses.uses(), kArenaAlignment);
  plan.slots.assign(uses.uses().begin(), uses.uses().end());
  return plan;
}

absl::StatusOr<std::unique_ptr<Program>> BindProgram(const ProgramSource& source,
                                                     const ArenaPlan& plan, Address arena) {
  auto program = std::make_unique<Program>();
  program->gpu = source.gpu;
  program->arena = {arena, arena + plan.bytes};
  std::vector<uint64_t> addresses;
  std::vector<int> binding_of_slot;
  for (size_t i = 0; i < source.slots.size(); ++i) {
    addresses.push_back(arena + plan.slots[i].offset);
    program->slot_bytes += source.slots[i].bytes;
    const bool binding = source.slots[i].role == CONCERT_SLOT_BINDING;
    binding_of_slot.push_back(binding ? static_cast<int>(program->bindings.size()) : -1);
    if (binding) program->bindings.push_back({addresses[i], source.slots[i].bytes, false});
  }
  const std::vector<BufferRange> ranges = SlotRanges(source, addresses);
  const AdmitContext context{.gpu = source.gpu, .buffers = source.buffers, .slots = ranges};
  program->ops.resize(source.ops.size());
  for (size_t i = 0; i < source.ops.size(); ++i) {
    Op& op = program->ops[i];
    const Failure failure = AdmitStep(source.ops[i], context, op);
    if (!failure.ok()) return ErrorOf(i, source.ops[i].kind, failure);
    NoteAccesses(AccessesOf(op), *program, binding_of_slot);
  }
  std::sort(program->buffers.begin(), program->buffers.end());
  program->buffers.erase(std::unique(program->buffers.begin(), program->buffers.end()),
                         program->buffers.end());
  program->work = WorkOf(*program);
  return program;
}

}  // namespace concert::kernels
