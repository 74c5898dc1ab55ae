// Waits for counters that only rise, ordered by the value they wait for: a leftist heap (Crane
// 1972, in Knuth, The Art of Computer Programming 3, 5.2.3) whose nodes lie in storage of a fixed
// size, so that a wait is added, met and withdrawn in O(log n) steps, at worst, and nothing is
// allocated. Waits for one value are met newest first, each in O(1).
#ifndef CONCERT_DAEMON_SCHED_WAIT_HEAP_H_
#define CONCERT_DAEMON_SCHED_WAIT_HEAP_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace concert::daemon {

// The nodes of many heaps. A heap is its root: a node, or kEmpty. Not thread-safe.
class WaitHeap {
 public:
  using Node = uint32_t;
  static constexpr Node kEmpty = std::numeric_limits<Node>::max();

  // Nodes [0, capacity). Memory is reserved, and touched as far as nodes are used.
  explicit WaitHeap(size_t capacity)
      : links_(static_cast<Links*>(::operator new(sizeof(Links) * capacity))) {}
  ~WaitHeap() { ::operator delete(links_); }
  WaitHeap(const WaitHeap&) = delete;
  WaitHeap& operator=(const WaitHeap&) = delete;

  // `owner`: whatever helps to find the heap again. REQUIRES: the node is in no heap.
  void Insert(Node& root, Node node, uint64_t value, uint32_t owner) {
    links_[node] = {.value = value, .owner = owner};
    root = Merge(node, root);
    links_[root].parent = kEmpty;
  }

  // REQUIRES: the node is in this heap; the root is the wait with the smallest value.
  void Remove(Node& root, Node node) {
    const Links& gone = links_[node];
    const Node rest = Merge(gone.left, gone.right);
    Node above = gone.parent;
    if (rest != kEmpty) links_[rest].parent = above;
    if (above == kEmpty) {
      root = rest;
      return;
    }
    (links_[above].left == node ? links_[above].left : links_[above].right) = rest;
    // Every rank that changes is greater than the one below it, so this too takes O(log n) steps.
    for (; above != kEmpty; above = links_[above].parent) {
      const uint32_t before = links_[above].rank;
      Balance(links_[above]);
      if (links_[above].rank == before) break;
    }
  }

  uint64_t value(Node node) const { return links_[node].value; }
  uint32_t owner(Node node) const { return links_[node].owner; }

 private:
  struct Links {
    uint64_t value = 0;
    uint32_t owner = 0;
    Node left = kEmpty, right = kEmpty, parent = kEmpty;
    uint32_t rank = 1;  // nodes on the way right, down to the end
  };

  uint32_t RankOf(Node node) const { return node == kEmpty ? 0 : links_[node].rank; }
  void Balance(Links& top) {
    if (RankOf(top.left) < RankOf(top.right)) std::swap(top.left, top.right);
    top.rank = RankOf(top.right) + 1;
  }
  // As deep as the ranks of both: log2 of their sizes.
  Node Merge(Node a, Node b) {
    if (a == kEmpty) return b;
    if (b == kEmpty) return a;
    if (links_[a].value > links_[b].value) std::swap(a, b);
    Links& top = links_[a];
    top.right = Merge(top.right, b);
    links_[top.right].parent = a;
    Balance(top);
    return a;
  }

  Links* const links_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_WAIT_HEAP_H_
