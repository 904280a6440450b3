#include "tierd/server/ring_drain.h"

#include <algorithm>

namespace tierd::server {
namespace {

constexpr std::uint32_t kPlaceBits = 24;     // of a key: within a step
constexpr std::uint32_t kFutureSteps = 255;  // the twelve bits mean 16 s of past and one of future
static_assert(abi::kRingEntries <= 1u << 12);
constexpr std::uint64_t kMostLost = std::uint64_t{1} << 24;  // of a ring between two looks

bool Written(std::uint64_t entry, std::uint64_t position) { return static_cast<std::uint8_t>(entry >> 56) == static_cast<std::uint8_t>(position / abi::kRingEntries + 1); }
std::uint64_t EntryAt(const abi::SessionPage& page, std::uint64_t position) { return page.ring[position % abi::kRingEntries].load(std::memory_order_acquire); }

}  // namespace

void RingDrain::Add(std::uint32_t session, const abi::SessionPage& page, std::uint64_t& tail) {
  const std::uint64_t head = page.ring_head.load(std::memory_order_acquire);
  if (head == tail) return;
  if (head - tail > abi::kRingEntries) {  // overrun, or a hostile head
    lost_ += std::min(head - tail - abi::kRingEntries, kMostLost);
    tail = head - abi::kRingEntries;
  }
  rings_.push_back({.session = session, .time = 0, .page = &page, .tail = &tail, .head = head, .entry = 0, .key = 0, .run_begin = 0, .run_end = tail, .stride = 0});
}

void RingDrain::Begin(std::int64_t now_ns) {
  oldest_ = static_cast<std::uint32_t>(now_ns >> 22) - (0xfffu - kFutureSteps);
  for (std::uint32_t i = 0; i < rings_.size(); ++i) {
    if (Load(rings_[i])) heap_.push_back(i);
  }
  std::make_heap(heap_.begin(), heap_.end(), [this](std::uint32_t a, std::uint32_t b) { return Later(a, b); });
}

// The entry at the ring's tail. False: there is none, or none yet.
bool RingDrain::Load(Cursor& ring) {
  for (std::uint64_t& at = *ring.tail; at != ring.head; ++at) {
    ring.entry = EntryAt(*ring.page, at);
    if (Written(ring.entry, at)) {
      if (rings_.size() > 1) Step(ring);
      return true;
    }
    // Reserved, not written yet: looked at again next time; a writer that died in between is overrun in the end.
    if (ring.head - at < abi::kRingEntries / 2) return false;
    ++lost_;
  }
  return false;
}

// The key of the entry at the tail; where that begins a step, the entries of the step are counted.
void RingDrain::Step(Cursor& ring) {
  const std::uint64_t at = *ring.tail;
  if (at >= ring.run_end) {
    ring.time = std::max(ring.time, TimeOf(ring.entry));
    ring.run_begin = at;
    for (ring.run_end = at + 1; ring.run_end != ring.head; ++ring.run_end) {
      const std::uint64_t entry = EntryAt(*ring.page, ring.run_end);
      if (!Written(entry, ring.run_end) || TimeOf(entry) > ring.time) break;
    }
    ring.stride = (1u << kPlaceBits) / static_cast<std::uint32_t>(ring.run_end - ring.run_begin);
  }
  ring.key = (std::uint64_t{ring.time} << kPlaceBits) + (at - ring.run_begin) * ring.stride + ring.stride / 2;
}

// The ring at the top of the heap has handed its entry over.
void RingDrain::Next(Cursor& ring) {
  ++*ring.tail;
  const bool there = Load(ring);
  if (there && heap_.size() == 1) return;
  const auto later = [this](std::uint32_t a, std::uint32_t b) { return Later(a, b); };
  if (there) {
    // Down to its place; the standard library can only take out and put in again, which costs twice as much.
    const std::uint32_t moved = heap_.front();
    std::size_t at = 0;
    for (std::size_t child = 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && later(heap_[child], heap_[child + 1])) ++child;
      if (!later(moved, heap_[child])) break;
      heap_[at] = heap_[child];
      at = child;
    }
    heap_[at] = moved;
    return;
  }
  std::pop_heap(heap_.begin(), heap_.end(), later);  // by its old key, the least
  heap_.pop_back();
}

void RingDrain::Forget() {
  rings_.clear();
  heap_.clear();
  lost_ = 0;
}

}  // namespace tierd::server
