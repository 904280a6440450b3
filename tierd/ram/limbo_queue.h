// The frames of the limbo, oldest first. Whoever makes a frame makes room for it here, so that its way into the limbo cannot fail for want of memory: nobody could say
// then whose it is.
//
// Owner: RamTier. Loop thread only.
#pragma once

#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/ram/frame_id.h"

namespace tierd::ram {

class LimboQueue {
 public:
  // Room for `frames` in all, those that are here included. Throws std::bad_alloc, and nothing has changed.
  void Reserve(std::size_t frames) {
    if (frames <= room_) return;
    const std::size_t room = std::bit_ceil(frames);
    auto larger = std::make_unique_for_overwrite<FrameId[]>(room);
    for (std::size_t i = 0; i < count_; ++i) larger[i] = At(i);
    ring_ = std::move(larger);
    room_ = room;
    begin_ = 0;
  }
  void Push(FrameId frame) {
    TIERD_CHECK(count_ < room_);
    At(count_++) = frame;
  }
  FrameId Pop() {
    TIERD_CHECK(count_ > 0);
    const FrameId frame = At(0);
    begin_ = --count_ == 0 ? 0 : (begin_ + 1) & (room_ - 1);  // from the front again: what was never needed is no memory
    return frame;
  }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  FrameId& At(std::size_t i) { return ring_[(begin_ + i) & (room_ - 1)]; }

  std::unique_ptr<FrameId[]> ring_;  // not touched before it is used: a place for each frame there is
  std::size_t room_ = 0;             // a power of two, or 0
  std::size_t begin_ = 0;
  std::size_t count_ = 0;
};

}  // namespace tierd::ram
