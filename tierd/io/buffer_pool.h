// Aligned buffers for bytes whose place is not known yet, kept for reuse by size class so that no read pays for fresh pages; and
// RestBuffer, in which a request takes what a file turns out to have beyond the buffer it was given.
//
// BufferPool guards itself (any thread): workers of an engine take from it. Owners: whoever reads into its buffers, and every
// RestBuffer, which may outlive them with a request that hangs.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "tierd/io/aligned_buffer.h"

namespace tierd::io {

class BufferPool {
 public:
  // `limit_bytes`: lent and kept together. Beyond it Take refuses, so that whoever is slow with the bytes cannot fill the memory.
  explicit BufferPool(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // At least `bytes`; empty when the limit is reached or there is no memory.
  AlignedBuffer Take(std::size_t bytes);
  void Give(AlignedBuffer buffer);
  // Bytes lent and kept.
  std::size_t held_bytes() const;
  std::size_t limit_bytes() const { return limit_bytes_; }

 private:
  static constexpr std::size_t kClasses = 24;  // 4 KiB doubled
  static std::size_t ClassOf(std::size_t bytes);
  void DropKept();

  const std::size_t limit_bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::array<std::vector<AlignedBuffer>, kClasses> kept_;
  std::size_t held_bytes_ = 0;
};

// Owners: the request (engine, worker) and who made it, who looks at it when the request is over. Used by one of them at a time.
class RestBuffer {
 public:
  // Takes nothing from the pool until a file needs it. `most` > 0: bytes at most.
  RestBuffer(std::shared_ptr<BufferPool> pool, std::size_t most) : pool_(std::move(pool)), most_(most) {}
  ~RestBuffer() { Release(); }
  RestBuffer(const RestBuffer&) = delete;
  RestBuffer& operator=(const RestBuffer&) = delete;

  // Room for `bytes`, at most `most`, in place of what it had. False: there is none; it is empty then.
  bool Hold(std::size_t bytes);
  void Release();
  // Leaves the memory to the process: an abandoned request may still write to it.
  void Abandon() { buffer_.Abandon(); }
  std::size_t most() const { return most_; }
  bool empty() const { return buffer_.empty(); }
  std::byte* data() const { return buffer_.data(); }

 private:
  const std::shared_ptr<BufferPool> pool_;  // owners: see above
  const std::size_t most_;
  AlignedBuffer buffer_;
};

}  // namespace tierd::io
