// The two memory regions of a session (proto/ring/ring_abi.h), mapped, with the daemon's layout
// checked: after Map, every accessor stays within the mappings for every index below the layout's
// counts.
#ifndef CONCERT_CLIENT_SRC_REMOTE_REGIONS_H_
#define CONCERT_CLIENT_SRC_REMOTE_REGIONS_H_

#include "client/src/mapping.h"
#include "concert/concert.h"
#include "proto/ring/ring_abi.h"
#include "proto/unique_fd.h"

namespace concert::client {

class Regions {
 public:
  // FAILED_PRECONDITION with the bad field when the layout cannot be used.
  int Map(const concert_layout& layout, const UniqueFd& client_fd, const UniqueFd& daemon_fd,
          concert_error* error);

  const concert_layout& layout() const { return layout_; }
  const Mapping& client() const { return client_; }
  const Mapping& daemon() const { return daemon_; }

  const concert_session_page& page() const { return *In<const concert_session_page>(daemon_, 0); }
  const concert_ring_state& ring_state(uint32_t ring) const {
    return In<const concert_ring_state>(daemon_, layout_.ring_states_offset)[ring];
  }
  const concert_completion* completions(uint32_t ring) const {
    return In<const concert_completion>(daemon_, layout_.rings[ring].completions_offset);
  }
  const uint64_t* timeline(uint32_t queue) const {
    return &In<const concert_timeline>(daemon_, layout_.timelines_offset)[queue].value;
  }
  concert_submit_control& submit_control(uint32_t ring) const {
    return In<concert_submit_control>(client_, 0)[ring];
  }
  concert_descriptor* descriptors(uint32_t ring) const {
    return In<concert_descriptor>(client_, layout_.rings[ring].descriptors_offset);
  }
  uint32_t* waiters(uint32_t queue) const {
    return In<uint32_t>(client_, layout_.waiters_offset) + queue;
  }
  uint64_t* user_timeline(uint32_t index) const {
    return &In<concert_timeline>(client_, layout_.user_timelines_offset)[index].value;
  }

 private:
  template <typename T>
  static T* In(const Mapping& mapping, uint64_t offset) {
    return reinterpret_cast<T*>(mapping.data() + offset);
  }

  concert_layout layout_{};
  Mapping client_;
  Mapping daemon_;
};

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_REMOTE_REGIONS_H_
