#include "daemon/sched/watches.h"

#include <algorithm>
#include <atomic>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

constexpr int kWordsPerHasWork = 4;  // hot words that an idle dispatcher looks at all the time

}  // namespace

// Acquire: pairs with the writer's release after what the wait is for.
uint64_t Watches::Read(const Word& word) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(*word.word))
      .load(std::memory_order_acquire);
}

void Watches::Append(List& list, WordId id) {
  Links& links = words_[id].*list.links;
  if (links.listed) return;
  links = {.previous = list.last, .next = kNone, .listed = true};
  (list.last == kNone ? list.first : (words_[list.last].*list.links).next) = id;
  list.last = id;
  ++list.count;
}

void Watches::Remove(List& list, WordId id) {
  Links& links = words_[id].*list.links;
  if (!links.listed) return;
  if (&list == &hot_ && hot_next_ == id) hot_next_ = links.next;
  (links.previous == kNone ? list.first : (words_[links.previous].*list.links).next) = links.next;
  (links.next == kNone ? list.last : (words_[links.next].*list.links).previous) = links.previous;
  links.listed = false;
  --list.count;
}

void Watches::Add(WordId& home, const uint64_t& word, OpId op, uint8_t index, uint64_t value) {
  if (home == kNone) {
    if (free_.empty()) {
      free_.push_back(static_cast<WordId>(words_.size()));
      words_.emplace_back();
      free_.reserve(words_.capacity());
    }
    home = free_.back();
    free_.pop_back();
    words_[home] = Word{};
    words_[home].word = &word;
    words_[home].home = &home;
  }
  const WordId id = home;
  heap_.Insert(words_[id].waits, op * CONCERT_MAX_WAITS + index, value, id);
  Heat(id);
  if (Due(words_[id])) Append(due_, id);
}

void Watches::Drop(OpId op, uint8_t index) {
  const Node node = op * CONCERT_MAX_WAITS + index;
  const WordId id = heap_.owner(node);
  heap_.Remove(words_[id].waits, node);
  Settle(id);
}

const uint64_t& Watches::WordOf(OpId op, uint8_t index) const {
  return *words_[heap_.owner(op * CONCERT_MAX_WAITS + index)].word;
}

// To the end of the hot words. The one that has not moved for longest makes room.
void Watches::Heat(WordId id) {
  Remove(words_[id].hot ? hot_ : cold_, id);
  words_[id].hot = true;
  Append(hot_, id);
  if (hot_.count <= kHotWords) return;
  const WordId oldest = hot_.first;
  Remove(hot_, oldest);
  words_[oldest].hot = false;
  Append(cold_, oldest);
}

// Whether the word has moved.
bool Watches::Look(WordId id, Time now) {
  Word& word = words_[id];
  ++reads_;
  word.read_at = now;
  const uint64_t value = Read(word);
  if (value == word.seen) return false;
  word.seen = value;
  if (Due(word)) Append(due_, id);
  return true;
}

void Watches::ReadHot(Time now) {
  // Hot ones stay in the order of their last move, so a cursor goes through them.
  WordId id = hot_next_;
  for (uint32_t i = std::min(hot_.count, kHotPerTurn); i > 0; --i) {
    if (id == kNone) id = hot_.first;
    const WordId next = words_[id].turn.next;
    if (Look(id, now)) Heat(id);
    id = next;
  }
  hot_next_ = id;
}

bool Watches::ReadCold(Time now) {
  cold_since_ = std::max(cold_since_, now - kColdPerTurn * kColdPollNs);
  while (cold_.count > 0 && cold_since_ + kColdPollNs <= now) {
    const WordId first = cold_.first;
    if (words_[first].read_at + kColdPeriodNs > now) break;
    cold_since_ += kColdPollNs;
    if (Look(first, now)) {
      Heat(first);
    } else {
      Remove(cold_, first);
      Append(cold_, first);
    }
  }
  return due_.count > 0;
}

// Lists the word as due, or forgets it when nothing waits for it any more.
void Watches::Settle(WordId id) {
  Word& word = words_[id];
  if (word.waits != WaitHeap::kEmpty) {
    if (Due(word)) Append(due_, id);
    return;
  }
  Remove(due_, id);
  Remove(word.hot ? hot_ : cold_, id);
  *word.home = kNone;
  free_.push_back(id);
}

bool Watches::HasWork() const {
  if (due_.count > 0) return true;
  WordId id = hot_.first;
  for (int i = 0; i < kWordsPerHasWork && id != kNone; ++i, id = words_[id].turn.next) {
    if (Read(words_[id]) != words_[id].seen) return true;
  }
  return false;
}

}  // namespace concert::daemon
