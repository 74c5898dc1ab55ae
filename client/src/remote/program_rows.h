// What is recorded for so many rows, for fewer.
#ifndef CONCERT_CLIENT_SRC_REMOTE_PROGRAM_ROWS_H_
#define CONCERT_CLIENT_SRC_REMOTE_PROGRAM_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "proto/ring/ring_abi.h"

namespace concert::client {

bool AnyHasRows(std::span<const concert_descriptor> ops, uint32_t rows);

// With `fewer` rows where an op has `rows`. Strides are what they are.
std::vector<concert_descriptor> WithRows(std::span<const concert_descriptor> ops, uint32_t rows,
                                         uint32_t fewer);

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_PROGRAM_ROWS_H_
