// A screen as lines of styled text, before it is a terminal's. Value types.
#ifndef CONCERT_CLIENT_CTL_TOP_FRAME_H_
#define CONCERT_CLIENT_CTL_TOP_FRAME_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/ctl/text.h"

namespace concert::ctl {

enum class Style : uint8_t {
  kPlain,
  kBold,
  kFaint,
  kReverse,  // titles and keys
  // What bars and plots show.
  kTime,
  kSms,
  kBandwidth,
  kQueue,
  kMemory,
  kPower,
  kGood,
  kWarning,
  kBad,
};
inline constexpr int kStyleCount = static_cast<int>(Style::kBad) + 1;

struct Span {
  std::string text;
  Style style = Style::kPlain;

  friend bool operator==(const Span&, const Span&) = default;
};

// Takes no more than its width; what is beyond is cut off.
class Line {
 public:
  explicit Line(int width) : width_(width) {}

  void Add(std::string_view text, Style style = Style::kPlain) {
    const std::string fitting = Fit(text, width_ - columns_);
    if (fitting.empty()) return;
    columns_ += Columns(fitting);
    spans_.push_back({fitting, style});
  }
  // Spaces up to `column`.
  void AdvanceTo(int column, Style style = Style::kPlain) {
    if (column > columns_) Add(std::string(static_cast<size_t>(column - columns_), ' '), style);
  }

  int width() const { return width_; }
  int columns() const { return columns_; }
  int left() const { return width_ - columns_; }
  const std::vector<Span>& spans() const { return spans_; }
  std::string Text() const {
    std::string text;
    for (const Span& span : spans_) text += span.text;
    return text;
  }

 private:
  int width_;
  int columns_ = 0;
  std::vector<Span> spans_;
};

struct Size {
  int rows = 24;
  int columns = 80;
};

struct Frame {
  std::vector<Line> lines;  // at most Size::rows
  // Of the list that scrolls: how many rows it has, and how many are shown.
  int row_count = 0;
  int shown_count = 0;
};

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_FRAME_H_
