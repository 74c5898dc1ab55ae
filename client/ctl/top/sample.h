// What `top` knows of an interval: one message of a watch, and what the daemon answered right
// after.
#ifndef CONCERT_CLIENT_CTL_TOP_SAMPLE_H_
#define CONCERT_CLIENT_CTL_TOP_SAMPLE_H_

#include "proto/concert/v1/admin.pb.h"

namespace concert::ctl {

struct TopSample {
  v1::GetStatusResponse status;
  v1::ListDevicesResponse devices;
  v1::ListSessionsResponse sessions;
  // interval_seconds is 0 at first, when there are no rates yet.
  v1::WatchStatsResponse delta;
};

}  // namespace concert::ctl

#endif  // CONCERT_CLIENT_CTL_TOP_SAMPLE_H_
