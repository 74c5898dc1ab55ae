#ifndef CONCERT_POLICIES_SEAM_FORM_H_
#define CONCERT_POLICIES_SEAM_FORM_H_

#include <cstdint>

namespace concert::policies {

// How GEMMs of a plan run.
enum class Form : uint8_t {
  kSingle,   // one op alone on the GPU
  kStreams,  // several launches side by side
  kGroup,    // one launch for several problems
};
inline constexpr int kFormCount = 3;

// Of one launch of the row kernel, at most: they are its parameters.
inline constexpr int kMaxRowOps = 24;

// How a whole plan runs: all of it in one form, or in turn as several groups, or as groups and
// launches of single ops.
enum class Arrangement : uint8_t { kSingle, kStreams, kGroup, kGroups, kMixed };
inline constexpr int kArrangementCount = 5;
constexpr Arrangement ArrangementOf(Form form) { return static_cast<Arrangement>(form); }

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_FORM_H_
