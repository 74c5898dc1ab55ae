#ifndef CONCERT_POLICIES_FORM_H_
#define CONCERT_POLICIES_FORM_H_

#include <cstdint>

namespace concert::policies {

// How GEMMs of a plan run.
enum class Form : uint8_t {
  kSingle,   // one op alone on the GPU
  kStreams,  // several launches side by side
  kGroup,    // one launch for several problems
};
inline constexpr int kFormCount = 3;

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_FORM_H_
