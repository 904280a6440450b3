// The frames of the limbo, oldest first. Whoever makes a frame makes room for it here, so that its way into the limbo cannot fail for want of memory: nobody could say
// then whose it is.
//
// Owner: RamTier. Loop thread only.
#pragma once

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include "tierd/base/check.h"
#include "tierd/ram/frame_id.h"

namespace tierd::ram {

class LimboQueue {
 public:
  // Room for `frames` in all, those that are here included. Throws std::bad_alloc, and nothing has changed.
  void Reserve(std::size_t frames) {
    if (frames <= ring_.size()) return;
    std::vector<FrameId> larger(std::bit_ceil(frames), kNoFrame);
    for (std::size_t i = 0; i < count_; ++i) larger[i] = At(i);
    ring_ = std::move(larger);
    begin_ = 0;
  }
  void Push(FrameId frame) {
    TIERD_CHECK(count_ < ring_.size());
    At(count_++) = frame;
  }
  FrameId Pop() {
    TIERD_CHECK(count_ > 0);
    const FrameId frame = At(0);
    begin_ = (begin_ + 1) % ring_.size();
    --count_;
    return frame;
  }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  FrameId& At(std::size_t i) { return ring_[(begin_ + i) & (ring_.size() - 1)]; }

  std::vector<FrameId> ring_;  // a power of two, or empty
  std::size_t begin_ = 0;
  std::size_t count_ = 0;
};

}  // namespace tierd::ram
