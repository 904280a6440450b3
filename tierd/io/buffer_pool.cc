#include "tierd/io/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace tierd::io {

std::size_t BufferPool::ClassOf(std::size_t bytes) {
  const std::size_t pages = std::max<std::size_t>(1, (bytes + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment);
  return static_cast<std::size_t>(std::countr_zero(std::bit_ceil(pages)));
}

AlignedBuffer BufferPool::Take(std::size_t bytes) {
  const std::size_t number = ClassOf(bytes);
  if (number >= kClasses) return {};
  const std::size_t size = AlignedBuffer::kAlignment << number;
  {
    const std::lock_guard lock(mutex_);
    auto& kept = kept_[number];
    if (!kept.empty()) {
      AlignedBuffer buffer = std::move(kept.back());
      kept.pop_back();
      return buffer;
    }
    if (held_bytes_ + size > limit_bytes_) DropKept();
    if (held_bytes_ + size > limit_bytes_) return {};
    held_bytes_ += size;
  }
  AlignedBuffer buffer(size);
  if (buffer.empty()) {
    const std::lock_guard lock(mutex_);
    held_bytes_ -= size;
  }
  return buffer;
}

void BufferPool::Give(AlignedBuffer buffer) {
  if (buffer.empty()) return;
  const std::size_t size = buffer.size();
  const std::lock_guard lock(mutex_);
  try {
    kept_[ClassOf(size)].push_back(std::move(buffer));
  } catch (const std::bad_alloc&) {  // then the system has it back
    held_bytes_ -= size;
  }
}

void BufferPool::DropKept() {
  for (auto& kept : kept_) {
    for (const AlignedBuffer& buffer : kept) held_bytes_ -= buffer.size();
    kept.clear();
  }
}

std::size_t BufferPool::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_bytes_;
}

bool RestBuffer::Hold(std::size_t bytes) {
  if (buffer_.size() >= bytes) return true;
  Release();
  buffer_ = pool_->Take(bytes);
  return !buffer_.empty();
}

void RestBuffer::Release() {
  pool_->Give(std::exchange(buffer_, {}));
}

}  // namespace tierd::io
