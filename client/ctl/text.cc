#include "client/ctl/text.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace concert::ctl {
namespace {

constexpr int kMaxMarks = 2;

// Every glibc since 2.35 has this locale built in, whatever the user's is.
locale_t Utf8() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

class InUtf8 {
 public:
  InUtf8() : before_(Utf8() == nullptr ? nullptr : uselocale(Utf8())) {}
  ~InUtf8() {
    if (before_ != nullptr) uselocale(before_);
  }
  InUtf8(const InUtf8&) = delete;
  InUtf8& operator=(const InUtf8&) = delete;

 private:
  const locale_t before_;
};

// The next character, which is taken off `text`, and how many columns it has: none for a mark.
// Nothing if it cannot be shown.
std::optional<Cell> TakeCharacter(std::string_view* text) {
  wchar_t character = 0;
  mbstate_t state{};
  const size_t bytes = mbrtowc(&character, text->data(), text->size(), &state);
  const bool valid = bytes > 0 && bytes <= text->size();
  const std::string_view taken = text->substr(0, valid ? bytes : 1);
  text->remove_prefix(taken.size());
  const int columns = valid ? wcwidth(character) : -1;
  if (columns < 0) return std::nullopt;
  return Cell{std::string(taken), columns};
}

}  // namespace

std::vector<Cell> CellsOf(std::string_view utf8) {
  const InUtf8 locale;
  std::vector<Cell> cells;
  int marks = kMaxMarks;  // on the last of them
  while (!utf8.empty()) {
    std::optional<Cell> next = TakeCharacter(&utf8);
    if (next.has_value() && next->columns == 0 && !cells.empty()) {
      if (marks++ < kMaxMarks) cells.back().text += next->text;
      continue;
    }
    const bool shown = next.has_value() && next->columns > 0;
    cells.push_back(shown ? *std::move(next) : Cell{"?"});
    marks = shown ? 0 : kMaxMarks;
  }
  return cells;
}

int Columns(std::string_view utf8) {
  int columns = 0;
  for (const Cell& cell : CellsOf(utf8)) columns += cell.columns;
  return columns;
}

std::string Fit(std::string_view utf8, int columns) {
  const std::vector<Cell> cells = CellsOf(utf8);
  std::string whole, cut;
  int used = 0;
  for (const Cell& cell : cells) {
    if (used + cell.columns < columns) cut += cell.text;
    used += cell.columns;
    whole += cell.text;
    if (used > columns) return columns > 0 ? cut + "~" : "";
  }
  return whole;
}

std::string Pad(std::string_view utf8, int columns, Align align) {
  const std::string spaces(static_cast<size_t>(std::max(0, columns - Columns(utf8))), ' ');
  return align == Align::kLeft ? std::string(utf8) + spaces : spaces + std::string(utf8);
}

std::string ToAscii(std::string_view utf8) {
  std::string ascii;
  for (const Cell& cell : CellsOf(utf8)) {
    ascii += cell.text.size() == 1 ? cell.text : "?";
  }
  return ascii;
}

}  // namespace concert::ctl
