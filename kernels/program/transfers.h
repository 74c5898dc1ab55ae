// What a run moves between the buffers that it is given and where its ops have its bindings.
#ifndef CONCERT_KERNELS_PROGRAM_TRANSFERS_H_
#define CONCERT_KERNELS_PROGRAM_TRANSFERS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/program/pass.h"
#include "kernels/program/program.h"
#include "kernels/program/program_args.h"

namespace concert::kernels {

enum class Way : uint8_t { kIn, kOut };

// move(transfer) for each binding that goes this way: all before the ops, and what they write
// behind them.
template <typename Move>
void ForEachTransfer(const ProgramArgs& run, Way way, const Move& move) {
  for (size_t i = 0; i < run.program->bindings.size(); ++i) {
    const Program::Binding& binding = run.program->bindings[i];
    if (way == Way::kOut && !binding.written) continue;
    const Address given = run.bindings[i];
    const Address staged = run.pass == nullptr ? binding.staged : run.pass->StagedOf(run.member, i);
    move(way == Way::kIn ? Transfer{.to = staged, .from = given, .bytes = binding.bytes}
                         : Transfer{.to = given, .from = staged, .bytes = binding.bytes});
  }
}

// On the CPU, where addresses are pointers.
inline void ComputeTransfers(const ProgramArgs& run, Way way) {
  ForEachTransfer(run, way, [](const Transfer& transfer) {
    std::memcpy(reinterpret_cast<void*>(transfer.to), reinterpret_cast<const void*>(transfer.from),
                transfer.bytes);
  });
}

}  // namespace concert::kernels

#endif  // CONCERT_KERNELS_PROGRAM_TRANSFERS_H_
