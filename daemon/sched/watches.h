// Waits for words that others write: user timelines and queues of other GPUs. Nothing rings when
// such a word moves, so they are polled, at a bounded price:
//
// - A word is one poll, however many ops wait for it.
// - The kHotWords that were added or moved last are hot: kHotPerTurn of them are read every turn.
// - The others are cold: each is read at most once in kColdPeriodNs, all together one in
//   kColdPollNs, and kColdPerTurn in a turn. So one of n cold words is seen to move within
//   max(kColdPeriodNs, n * kColdPollNs), if turns are no rarer. The first turn behind a sleep reads
//   as many as it may, so a turn does so behind what it launches.
// - kMetPerTurn waits are reported in a turn; the rest have their turn in the next ones.
//
// Dropping a wait takes O(log n) steps. Fixed storage but for the table of words, which grows to as
// many as were ever watched at once. Not thread-safe.
#ifndef CONCERT_DAEMON_SCHED_WATCHES_H_
#define CONCERT_DAEMON_SCHED_WATCHES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/quota/budget.h"
#include "daemon/sched/op_pool.h"
#include "daemon/sched/wait_heap.h"
#include "policies/seam/snapshot.h"

namespace concert::daemon {

class Watches {
 public:
  using Time = policies::Time;
  using WordId = uint32_t;

  static constexpr uint32_t kHotWords = 64;
  static constexpr uint32_t kHotPerTurn = PerTurn(Work::kHotWords),
                            kColdPerTurn = PerTurn(Work::kColdWords),
                            kMetPerTurn = PerTurn(Work::kWordWaits);
  static constexpr Time kColdPeriodNs = 1'000'000, kColdPollNs = 1'000;

  explicit Watches(uint32_t max_ops) : heap_(size_t{max_ops} * CONCERT_MAX_WAITS) {}

  // `op` waits, with its wait `index`, until `word` is at least `value`. `home`: where whoever owns
  // the word keeps the id of its entry here; kNone while nothing waits for it.
  void Add(WordId& home, const uint64_t& word, OpId op, uint8_t index, uint64_t value);
  // The op does not wait any more. REQUIRES: it was added, and neither dropped nor reported.
  void Drop(OpId op, uint8_t index);
  // The op waits for this one. REQUIRES: as Drop.
  const uint64_t& WordOf(OpId op, uint8_t index) const;

  // Reads hot words, and calls met(op, index) for waits that are met and forgets them. Returns how
  // many.
  template <typename Met>
  uint32_t Poll(Time now, Met met) {
    if (empty()) return 0;
    ReadHot(now);
    uint32_t count = 0;
    while (due_.count > 0 && count < kMetPerTurn) {
      const WordId id = due_.first;
      for (int i = 0; i < kMetPerVisit && Due(words_[id]); ++i, ++count) {
        const Node node = words_[id].waits;
        heap_.Remove(words_[id].waits, node);
        met(node / CONCERT_MAX_WAITS, static_cast<uint8_t>(node % CONCERT_MAX_WAITS));
      }
      Remove(due_, id);
      Settle(id);
    }
    return count;
  }
  // Reads cold words. Whether Poll has something to report.
  bool ReadCold(Time now);
  // The word goes away: reads it once more and ends up to `limit` waits: ended(op, index, value it
  // waits for, value the word has). Returns how many; fewer than `limit`: none is left.
  template <typename Ended>
  uint32_t End(WordId id, uint32_t limit, Ended ended) {
    const uint64_t value = Read(words_[id]);
    uint32_t count = 0;
    for (; count < limit && words_[id].waits != WaitHeap::kEmpty; ++count) {
      const Node node = words_[id].waits;
      const uint64_t awaited = heap_.value(node);
      heap_.Remove(words_[id].waits, node);
      ended(node / CONCERT_MAX_WAITS, static_cast<uint8_t>(node % CONCERT_MAX_WAITS), awaited,
            value);
    }
    Settle(id);
    return count;
  }

  // Whether Poll would find one of the first few hot words moved, or has something left to report.
  bool HasWork() const;
  bool empty() const { return hot_.count + cold_.count == 0; }
  uint32_t word_count() const { return hot_.count + cold_.count; }
  // Words read so far, for tests.
  uint64_t reads() const { return reads_; }

 private:
  using Node = WaitHeap::Node;
  static constexpr int kMetPerVisit = 8;  // of a word before the next one's turn

  struct Links {
    WordId previous = kNone, next = kNone;
    bool listed = false;
  };
  struct Word {
    const uint64_t* word = nullptr;
    WordId* home = nullptr;
    Node waits = WaitHeap::kEmpty;
    uint64_t seen = 0;
    Time read_at = 0;
    bool hot = false;
    Links turn;  // in hot_ or cold_: whose turn it is to be read
    Links due;
  };
  struct List {
    Links Word::*links;
    WordId first = kNone, last = kNone;
    uint32_t count = 0;
  };

  static uint64_t Read(const Word& word);
  bool Due(const Word& word) const {
    return word.waits != WaitHeap::kEmpty && heap_.value(word.waits) <= word.seen;
  }
  void Append(List& list, WordId id);
  void Remove(List& list, WordId id);
  void Heat(WordId id);
  bool Look(WordId id, Time now);
  void ReadHot(Time now);
  void Settle(WordId id);

  WaitHeap heap_;  // node: op * CONCERT_MAX_WAITS + index
  std::vector<Word> words_;
  std::vector<WordId> free_;
  List hot_{&Word::turn}, cold_{&Word::turn}, due_{&Word::due};
  WordId hot_next_ = kNone;  // whose turn it is among the hot ones
  Time cold_since_ = 0;      // cold words may be read for the time since
  uint64_t reads_ = 0;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_SCHED_WATCHES_H_
