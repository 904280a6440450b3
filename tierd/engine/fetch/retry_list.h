// What waits for something that may come for a part of it only: tried in rounds, each thing once a round, some of them in a turn of the loop.
//
// Owner: Fetcher. Loop thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "tierd/base/clock.h"

namespace tierd::engine {

template <typename T>
class RetryList {
 public:
  void Add(T thing) { waiting_.push_back(std::move(thing)); }
  bool empty() const { return waiting_.empty(); }
  template <typename Is>
  std::size_t EraseIf(Is&& is) {
    const std::size_t erased = std::erase_if(waiting_, std::forward<Is>(is));
    due_ = std::min(due_, waiting_.size());
    return erased;
  }

  // Everything that waits is due.
  void BeginRound() { due_ = waiting_.size(); }
  // Takes what is due out, one after the other and one at least, until PreciseNs is `until_ns`. `go` may add it again: for the next round. False: some is still due.
  template <typename Go>
  bool Run(const Clock& clock, std::int64_t until_ns, Go&& go) {
    std::vector<T> waiting = std::exchange(waiting_, {});
    const std::size_t end = std::exchange(due_, 0);
    std::size_t i = 0;
    while (i < end && (i == 0 || clock.PreciseNs() < until_ns)) go(waiting[i++]);
    waiting_.insert(waiting_.begin(), std::make_move_iterator(waiting.begin() + static_cast<std::ptrdiff_t>(i)), std::make_move_iterator(waiting.end()));
    due_ = end - i;
    return due_ == 0;
  }

 private:
  std::vector<T> waiting_;
  std::size_t due_ = 0;  // of them, the first
};

}  // namespace tierd::engine
