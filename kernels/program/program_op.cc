#include "kernels/program/program_op.h"

#include "kernels/program/pass.h"
#include "kernels/program/program.h"
#include "kernels/program/transfers.h"
#include "kernels/validate.h"

namespace concert::kernels {
namespace {

concert_field FieldOf(size_t binding) {
  return static_cast<concert_field>(CONCERT_FIELD_BINDING_0 + binding);
}

// Null unless the handle is a program's.
const BufferRange* FindProgram(const AdmitContext& context, uint32_t handle) {
  const uint32_t index = handle & kBufferIndexMask;
  if (index >= context.buffers.size()) return nullptr;
  const BufferRange& entry = context.buffers[index];
  const bool found = entry.program != nullptr && entry.generation == handle >> kBufferIndexBits;
  return found ? &entry : nullptr;
}

}  // namespace

Failure AdmitProgram(const concert_descriptor& descriptor, const AdmitContext& context, Op& op) {
  const concert_program_body& body = descriptor.body.program;
  uint64_t unused = uint64_t{body.reserved0} | AnyOf(body.reserved1);
  for (const concert_operand& binding : body.bindings) unused |= binding.scales;
  for (uint32_t i = body.binding_count; i < CONCERT_MAX_BINDINGS; ++i)
    unused |= body.bindings[i].buffer | body.bindings[i].offset;
  CONCERT_RETURN_IF_FAILED(CheckUnused(descriptor, unused));
  const BufferRange* entry = FindProgram(context, body.program);
  if (entry == nullptr) return {CONCERT_ABI_NOT_FOUND, CONCERT_MESSAGE_NO_PROGRAM, {body.program}};
  const Program& program = *entry->program;
  if (program.gpu != context.gpu) {
    return InvalidArgument(CONCERT_MESSAGE_WRONG_GPU, CONCERT_FIELD_PROGRAM,
                           static_cast<uint64_t>(program.gpu), static_cast<uint64_t>(context.gpu));
  }
  const uint64_t count = program.bindings.size();
  CONCERT_RETURN_IF_FAILED(
      CheckRange(CONCERT_FIELD_BINDING_COUNT, body.binding_count, count, count));
  OperandResolver resolver(context, op);
  op.kind = CONCERT_OP_PROGRAM;
  op.buffers.push_back(body.program & kBufferIndexMask);
  op.program.program = &program;
  op.program.pass = nullptr;
  for (size_t i = 0; i < count; ++i) {
    ByteRange range;
    CONCERT_RETURN_IF_FAILED(
        resolver.Resolve(FieldOf(i), body.bindings[i], program.bindings[i].bytes, 1, range));
    if (program.bindings[i].written && context.buffers[op.buffers[i + 1]].sealed)
      return WritesSealed(FieldOf(i), body.bindings[i].buffer);
    op.program.bindings[i] = range.begin;
  }
  op.work = program.work;
  return {};
}

Accesses AccessesOfProgram(const Op& op) {
  const Program& program = *op.program.program;
  Accesses accesses;
  accesses.Add(op, CONCERT_FIELD_PROGRAM, AccessMode::kReadWrite)
      .Set(program.arena.begin, program.arena.end - program.arena.begin);
  for (size_t i = 0; i < program.bindings.size(); ++i) {
    const Program::Binding& binding = program.bindings[i];
    accesses.Add(op, FieldOf(i), binding.written ? AccessMode::kReadWrite : AccessMode::kRead)
        .Set(op.program.bindings[i], binding.bytes);
  }
  if (program.written != ByteRange{}) {
    accesses.AddBound(program.written);
  }
  return accesses;
}

void ComputeProgram(std::span<const Op* const> parts) {
  const ProgramArgs& args = parts[0]->program;
  if (args.pass != nullptr) return ComputePass(*args.pass, parts);
  ComputeTransfers(args, Way::kIn);
  for (const Op& op : args.program->ops) {
    const Op* const part = &op;
    FindOpKind(op.kind)->compute({&part, 1});
  }
  ComputeTransfers(args, Way::kOut);
}

}  // namespace concert::kernels
