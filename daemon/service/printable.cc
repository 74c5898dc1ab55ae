#include "daemon/service/printable.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace concert::daemon {
namespace {

struct Range {
  uint32_t first, last;
};

// Unicode's controls, invisible and format characters, private use and what is no character, as far
// as they have no glyph or change how others are shown.
constexpr std::array kHidden = {
    Range{0x00, 0x1f},       Range{0x7f, 0x9f},        Range{0xad, 0xad},
    Range{0x61c, 0x61c},     Range{0x115f, 0x1160},    Range{0x180b, 0x180f},
    Range{0x200b, 0x200f},   Range{0x2028, 0x202e},    Range{0x2060, 0x206f},
    Range{0x3164, 0x3164},   Range{0xe000, 0xf8ff},    Range{0xfdd0, 0xfdef},
    Range{0xfe00, 0xfe0f},   Range{0xfeff, 0xfeff},    Range{0xffa0, 0xffa0},
    Range{0xfff0, 0xfffb},   Range{0xfffe, 0xffff},    Range{0x1d173, 0x1d17a},
    Range{0xe0000, 0xe0fff}, Range{0xf0000, 0x10ffff},
};

bool IsHidden(uint32_t code) {
  return std::any_of(kHidden.begin(), kHidden.end(), [code](const Range& range) {
    return range.first <= code && code <= range.last;
  });
}

// The code point at the start of `text`, and of how many bytes; 0 bytes: it is not well-formed
// (RFC 3629). REQUIRES: `text` is not empty.
std::pair<uint32_t, size_t> Decode(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const auto length = static_cast<size_t>(std::countl_one(byte(0)));
  if (length < 2 || length > 4 || text.size() < length) return {0, 0};
  uint32_t code = byte(0) & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kSmallest[length] || code > 0x10ffff || surrogate ? std::pair{0u, size_t{0}}
                                                                  : std::pair{code, length};
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [code, length] = Decode(text);
    const std::string_view bytes = text.substr(0, std::max<size_t>(length, 1));
    if (length == 0 || IsHidden(code)) {
      for (const char c : bytes) absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(c));
    } else if (code == '\\') {
      out += "\\\\";
    } else {
      out += bytes;
    }
    text.remove_prefix(bytes.size());
  }
  return out;
}

}  // namespace concert::daemon
