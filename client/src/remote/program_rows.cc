#include "client/src/remote/program_rows.h"

#include <algorithm>
#include <cstring>

namespace concert::client {
namespace {

// What an op with rows has first in its body, of whatever kind (proto/ring/ops/).
bool HasRows(const concert_descriptor& op, uint32_t rows) {
  if (op.kind == CONCERT_OP_COPY) return false;
  uint32_t own;
  std::memcpy(&own, &op.body, sizeof(own));
  return own == rows;
}

}  // namespace

bool AnyHasRows(std::span<const concert_descriptor> ops, uint32_t rows) {
  return std::any_of(ops.begin(), ops.end(),
                     [&](const concert_descriptor& op) { return HasRows(op, rows); });
}

std::vector<concert_descriptor> WithRows(std::span<const concert_descriptor> ops, uint32_t rows,
                                         uint32_t fewer) {
  std::vector<concert_descriptor> result(ops.begin(), ops.end());
  for (concert_descriptor& op : result) {
    if (HasRows(op, rows)) std::memcpy(&op.body, &fewer, sizeof(fewer));
  }
  return result;
}

}  // namespace concert::client
