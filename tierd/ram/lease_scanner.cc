#include "tierd/ram/lease_scanner.h"

#include <algorithm>
#include <atomic>

namespace tierd::ram {
namespace {

// The clients wrote these lines last: from many sessions they come side by side, not one after the other. A hint only; what is read is read behind the fence.
constexpr std::size_t kLooksAhead = 16;

}  // namespace

bool LeaseSet::Covers(std::uint64_t lease_word) const {
  if (words_.empty()) return false;
  return std::binary_search(words_.begin(), words_.end(), lease_word) ||
         std::binary_search(words_.begin(), words_.end(), lease_word & ~std::uint64_t{0xffff});
}

void LeaseScanner::Remove(const abi::SessionPage* page) {
  std::erase_if(pages_, [page](const Page& one) { return one.page == page; });
}

bool LeaseScanner::HaveUnmapped(std::uint64_t below, std::uint32_t notices) const {
  return std::all_of(pages_.begin(), pages_.end(), [&](const Page& page) {
    const std::uint32_t seen = page.page->gone_seen.load(std::memory_order_relaxed);
    return page.serial >= below || seen - notices < 0x80000000u;  // the count wraps
  });
}

std::uint64_t LeaseScanner::accesses_told() const {
  constexpr std::size_t kLooksAhead = 16;  // each is a cache line that the client wrote last: they come side by side, not one after the other
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    if (i + kLooksAhead < pages_.size()) __builtin_prefetch(&pages_[i + kLooksAhead].page->ring_head);
    sum += (pages_[i].page->ring_head.load(std::memory_order_relaxed) + 1) * (pages_[i].serial * 2 + 1) * 0x9e3779b97f4a7c15u;
  }
  return sum;
}

const LeaseSet& LeaseScanner::Scan() {
  ++scans_;
  looked_at_ = 0;
  set_.words_.clear();
  // The reader stores its lease, then loads the location; we stored the location, now load the leases: with a full fence on both sides
  // one of us sees the other (mutations M1, M2 of HAZARDS 1).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::size_t p = 0; p < pages_.size(); ++p) {
    if (p + kLooksAhead < pages_.size()) {
      const abi::SessionPage* const next = pages_[p + kLooksAhead].page;
      __builtin_prefetch(&next->lease_high);
      __builtin_prefetch(next->leases);
    }
    const abi::SessionPage* const page = pages_[p].page;
    const std::uint32_t high = std::min(page->lease_high.load(std::memory_order_acquire), abi::kLeaseSlots);
    looked_at_ += high;
    for (std::uint32_t i = 0; i < high; ++i) {
      // Acquire: the clear of a lease is a release, so the reader's loads from the frame are over when we see 0.
      const std::uint64_t word = page->leases[i].load(std::memory_order_acquire);
      if (word != 0) set_.words_.push_back(word);
    }
  }
  leases_ = set_.words_.size();
  std::sort(set_.words_.begin(), set_.words_.end());
  set_.words_.erase(std::unique(set_.words_.begin(), set_.words_.end()), set_.words_.end());
  return set_;
}

}  // namespace tierd::ram
