// The part of the screen that shows the GPUs: in blocks of bars with plots, or one line each.
#ifndef CONCERT_CLIENT_CTL_TOP_DRAW_GPUS_H_
#define CONCERT_CLIENT_CTL_TOP_DRAW_GPUS_H_

#include <vector>

#include "client/ctl/top/draw.h"

namespace concert::ctl {

// At most `rows` lines; none where there is no room for a GPU.
std::vector<Line> DrawGpus(const TopSample& sample, const History& history, const TopState& state,
                           const ScreenTraits& screen, int rows);

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_DRAW_GPUS_H_
