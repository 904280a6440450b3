// An array over dense ids that grows on demand and never moves what it holds: growth makes one page, it copies no element, so
// that an event of a policy costs the same at ten objects and at ten million. Value type, no thread rule.
//
// What is indexed at random over tens of megabytes waits as much for translations of addresses as for memory: pages beyond the first few lie in blocks
// of 2 MiB that ask for huge pages (a hint; without them all works). A block is touched page by page, and costs some 0.1 ms when its first page is.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace tierd::policies {

template <typename T>
class PagedArray {
 public:
  // Ids below Limit() may be indexed; they start as T().
  std::uint32_t Limit() const { return limit_; }
  void Cover(std::uint32_t id) {
    while (id >= Limit()) AddPage();
  }
  T& operator[](std::uint32_t id) { return pages_[id / kPage][id % kPage]; }
  const T& operator[](std::uint32_t id) const { return pages_[id / kPage][id % kPage]; }

 private:
  static_assert(std::is_trivially_destructible_v<T>);
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kBlockBytes = 2 << 20;
  static constexpr std::size_t kPageBytes = kPage * sizeof(T);
  static constexpr std::size_t kSmallPages = kBlockBytes / kPageBytes;  // as many elements as a block has
  static_assert(kSmallPages > 0);

  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  using Block = std::unique_ptr<void, Free>;

  void AddPage() {
    const bool small = pages_.size() < kSmallPages;
    if (small || used_ + kPageBytes > kBlockBytes) {
      const std::size_t bytes = small ? kPageBytes : kBlockBytes;
      Block block(std::aligned_alloc(small ? alignof(std::max_align_t) : kBlockBytes, bytes));
      if (block == nullptr) throw std::bad_alloc();
      if (!small) (void)::madvise(block.get(), bytes, MADV_HUGEPAGE);
      blocks_.push_back(std::move(block));
      used_ = 0;
    }
    void* const page = static_cast<std::byte*>(blocks_.back().get()) + used_;
    pages_.push_back(static_cast<T*>(page));
    used_ += small ? kBlockBytes : kPageBytes;
    std::uninitialized_value_construct_n(pages_.back(), kPage);
    limit_ = static_cast<std::uint32_t>(pages_.size() * kPage);
  }

  std::vector<T*> pages_;
  std::vector<Block> blocks_;
  std::size_t used_ = 0;  // of the last block
  std::uint32_t limit_ = 0;
};

}  // namespace tierd::policies
