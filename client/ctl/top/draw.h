// One screen of `top`, as a pure function of what the daemon said and what the user chose.
#ifndef CONCERT_CLIENT_CTL_TOP_DRAW_H_
#define CONCERT_CLIENT_CTL_TOP_DRAW_H_

#include "client/ctl/top/figures.h"
#include "client/ctl/top/frame.h"
#include "client/ctl/top/sample.h"
#include "client/ctl/top/state.h"

namespace concert::ctl {

struct ScreenTraits {
  Size size;
  bool unicode = true;  // the terminal shows more than ASCII
};

// At most size.rows lines of at most size.columns. With little room, plots go first, then bars
// become one line per GPU, then GPUs go; the list of sessions keeps a line.
Frame DrawTop(const TopSample& sample, const History& history, const TopState& state,
              const ScreenTraits& screen);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_DRAW_H_
