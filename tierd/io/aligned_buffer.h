// Memory for O_DIRECT: page-aligned, anonymous, zero, given back to the system when destroyed. Movable value type.
//
// A child of fork does not have it. Where it had, the kernels before 6.3 would let a read with O_DIRECT that is under way during the fork land in the
// child's copy of a page, and leave this process's as it was (open(2), NOTES); the daemon forks for each segment with large pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <span>
#include <utility>

namespace tierd::io {

class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 4096;

  AlignedBuffer() = default;
  // Rounds up to whole pages, which cost nothing until touched; empty() if there is no memory or `bytes` is 0.
  explicit AlignedBuffer(std::size_t bytes) {
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded == 0) return;
    void* memory = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    if (::madvise(memory, rounded, MADV_DONTFORK) != 0) {
      ::munmap(memory, rounded);
      return;
    }
    data_ = static_cast<std::byte*>(memory);
    size_ = rounded;
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    if (this != &other) {
      Free();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { Free(); }

  bool empty() const { return data_ == nullptr; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_, size_}; }
  // Leaves the memory to the process for good: a request that hangs may still write to it.
  void Abandon() {
    data_ = nullptr;
    size_ = 0;
  }

 private:
  void Free() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tierd::io
