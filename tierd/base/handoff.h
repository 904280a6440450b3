// Items on their way from any thread to any other, without a lock: who takes them never waits for somebody that was put off its processor.
//
// Item has a member `Item* next`, which belongs to the handoff while the item is in it. Owns nothing. Any thread.
#pragma once

#include <atomic>
#include <utility>

namespace tierd {

template <typename Item>
class Handoff {
 public:
  // True: it was empty.
  bool Push(Item* item) {
    Item* before = newest_.load();
    do item->next = before;
    while (!newest_.compare_exchange_weak(before, item));
    return before == nullptr;
  }
  bool empty() const { return newest_.load() == nullptr; }
  // All that is there, linked by `next`, the oldest first; null: nothing.
  Item* TakeAll() {
    Item* oldest = nullptr;
    for (Item* at = newest_.exchange(nullptr); at != nullptr;) oldest = std::exchange(at, std::exchange(at->next, oldest));
    return oldest;
  }

 private:
  std::atomic<Item*> newest_{nullptr};
};

}  // namespace tierd
