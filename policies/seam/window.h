// What of the sessions' DAGs lies behind what is ready: the ops that follow it in its queue. A view
// that is pulled op by op, so that a decision pays for what it looks at and nothing is copied.
#ifndef CONCERT_POLICIES_SEAM_WINDOW_H_
#define CONCERT_POLICIES_SEAM_WINDOW_H_

#include <cstdint>
#include <iterator>

#include "policies/seam/snapshot.h"
#include "policies/seam/work.h"

namespace concert::policies {

// How far the window reaches into a queue, so that no queue makes a decision long.
inline constexpr int kMaxFollowers = 64;

// An op behind the front of its queue. Its session and priority are those of the front.
struct QueuedOp {
  uint32_t op = 0;  // the scheduler's handle
  const Work* work = nullptr;
  // It depends on more than the op before it in its queue.
  bool waits_elsewhere = false;
};

// Valid during the decision that it is handed to.
class Window {
 public:
  // The op behind `op` in its queue, in constant time; false if there is none that can be ordered
  // behind it: one that failed only waits until all before it have ended. REQUIRES: `op` is of
  // Snapshot::ready or was given by this.
  virtual bool Follower(uint32_t op, QueuedOp& follower) const = 0;

 protected:
  ~Window() = default;
};

// for (const QueuedOp& op : FollowersOf(snapshot, ready)): the next in its queue, at most
// kMaxFollowers, pulled as the loop goes on.
class Followers {
 public:
  Followers(const Window* window, uint32_t op) : window_(window), op_(op) {}

  class Iterator {
   public:
    using value_type = QueuedOp;
    using difference_type = std::ptrdiff_t;

    Iterator(const Window* window, uint32_t op)
        : window_(window), op_{.op = op}, left_(window == nullptr ? 0 : kMaxFollowers) {
      Pull();
    }
    const QueuedOp& operator*() const { return op_; }
    const QueuedOp* operator->() const { return &op_; }
    Iterator& operator++() {
      Pull();
      return *this;
    }
    void operator++(int) { Pull(); }
    bool operator==(std::default_sentinel_t) const { return !there_; }

   private:
    void Pull() { there_ = left_-- > 0 && window_->Follower(op_.op, op_); }

    const Window* window_;
    QueuedOp op_;
    int left_;
    bool there_ = false;
  };
  Iterator begin() const { return {window_, op_}; }
  std::default_sentinel_t end() const { return {}; }

 private:
  const Window* window_;
  uint32_t op_;
};

inline Followers FollowersOf(const Snapshot& snapshot, const ReadyOp& op) {
  return {snapshot.window, op.op};
}

}  // namespace concert::policies

#endif  // CONCERT_POLICIES_SEAM_WINDOW_H_
