// Descriptors that admission refuses, and what it says of those that it accepts.
#ifndef CONCERT_TESTS_UNIT_KERNELS_REFUSALS_H_
#define CONCERT_TESTS_UNIT_KERNELS_REFUSALS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <vector>

#include "tests/unit/kernels/admit_fixture.h"

namespace concert::kernels {

struct Refusal {
  std::function<void(concert_descriptor&)> spoil;
  const char* sentence;  // a part of it
};

// `good` is accepted, also with the flag that there is, and refused with each case's sentence once
// that has spoilt it.
inline void ExpectRefusals(const concert_descriptor& good, const std::vector<Refusal>& cases) {
  Op op;
  EXPECT_TRUE(Admit(good, op).ok()) << Admit(good, op).ToString();
  concert_descriptor flagged = good;
  flagged.flags = CONCERT_OP_COULD_BE_RUN;
  EXPECT_TRUE(Admit(flagged, op).ok()) << Admit(flagged, op).ToString();
  for (const Refusal& bad : cases) {
    concert_descriptor descriptor = good;
    bad.spoil(descriptor);
    const Failure failure = Admit(descriptor, op);
    EXPECT_FALSE(failure.ok()) << bad.sentence;
    EXPECT_THAT(failure.ToString(), testing::HasSubstr(bad.sentence));
  }
}

// What an accepted op does with each of its operands.
inline std::map<concert_field, AccessMode> ModesOf(const concert_descriptor& descriptor) {
  Op op;
  EXPECT_TRUE(Admit(descriptor, op).ok());
  std::map<concert_field, AccessMode> modes;
  const Accesses accesses = AccessesOf(op);
  for (const Access& access : accesses.list()) modes[access.field] = access.mode;
  return modes;
}

}  // namespace concert::kernels

#endif  // CONCERT_TESTS_UNIT_KERNELS_REFUSALS_H_
