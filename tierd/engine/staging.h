// Private buffers for bytes whose frame is not known yet (a file of unknown size) or never will be (promotion to the SSD tier alone).
// Buffers are kept for reuse by size class, so that no read pays for fresh pages. Owner: Fetcher. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tierd/io/aligned_buffer.h"

namespace tierd::engine {

class StagingPool {
 public:
  // Bytes lent and kept together. Beyond it Take refuses, so that a slow SSD cannot fill the memory.
  static constexpr std::size_t kLimitBytes = std::size_t{128} << 20;

  // A 4 KiB-aligned buffer of at least `bytes`; empty when the limit is reached.
  io::AlignedBuffer Take(std::size_t bytes) {
    const std::size_t size = ClassOf(bytes);
    auto& kept = kept_[size];
    if (!kept.empty()) {
      io::AlignedBuffer buffer = std::move(kept.back());
      kept.pop_back();
      return buffer;
    }
    if (held_bytes_ + size > kLimitBytes) DropKept();
    if (held_bytes_ + size > kLimitBytes) return {};
    held_bytes_ += size;
    return io::AlignedBuffer(size);
  }
  void Give(io::AlignedBuffer buffer) {
    const std::size_t size = buffer.size();
    if (size != 0) kept_[size].push_back(std::move(buffer));
  }
  // Gives back what nobody uses.
  void DropKept() {
    for (auto& [size, buffers] : kept_) {
      held_bytes_ -= size * buffers.size();
      buffers.clear();
    }
  }
  std::size_t held_bytes() const { return held_bytes_; }

 private:
  static std::size_t ClassOf(std::size_t bytes) {
    std::size_t size = 4096;
    while (size < bytes) size *= 2;
    return size;
  }

  std::map<std::size_t, std::vector<io::AlignedBuffer>> kept_;
  std::size_t held_bytes_ = 0;
};

}  // namespace tierd::engine
