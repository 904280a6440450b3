#include "policies/use_log.h"

#include <algorithm>
#include <utility>

namespace tierd::policies {

void UseLog::AddPage() {
  const std::uint64_t first = begin_ / kPageEntries;
  const std::uint64_t number = end_ / kPageEntries;
  if (number - first >= pages_.size()) {
    // Twice as many; each goes to its place modulo the new number.
    std::vector<std::unique_ptr<Page>> more(std::max<std::size_t>(8, pages_.size() * 2));
    for (std::uint64_t page = first; page < number; ++page) more[page & (more.size() - 1)] = std::move(pages_[page & mask_]);
    pages_ = std::move(more);
    mask_ = pages_.size() - 1;
  }
  std::unique_ptr<Page>& page = pages_[number & mask_];
  if (page == nullptr) page = spare_ != nullptr ? std::move(spare_) : std::make_unique_for_overwrite<Page>();
  room_ = (number + 1) * kPageEntries;
}

void UseLog::DropPages(std::uint64_t from, std::uint64_t to) {
  for (std::uint64_t page = from; page < to; ++page) spare_ = std::move(pages_[page & mask_]);
}

void UseLog::PassEmpty(std::uint32_t looks) {
  const std::uint64_t before = begin_ / kPageEntries;
  while (begin_ < end_ && looks-- > 0) {
    if (sweeping_ && begin_ == hole_ && hole_ != sweep_) {
      begin_ = hole_ = sweep_;
      continue;
    }
    if (At(begin_) != TIERD_NO_OBJECT) break;
    ++begin_;
    if (sweeping_ && begin_ > hole_) hole_ = sweep_ = begin_;  // there was nothing between the two
  }
  DropPages(before, begin_ / kPageEntries);
}

void UseLog::Sweep(std::uint32_t entries) {
  if (!sweeping_) BeginSweep();
  for (; entries > 0 && sweep_ < end_; --entries, ++sweep_) {
    if (sweep_ + kAhead < end_) PrefetchStamp(At(sweep_ + kAhead));
    const std::uint32_t id = At(sweep_);
    if (id == TIERD_NO_OBJECT) continue;
    At(sweep_) = TIERD_NO_OBJECT;
    At(hole_) = id;
    stamps_[id] = Low(hole_++);
  }
  if (sweep_ < end_) return;
  // What follows goes where the hole begins.
  const std::uint64_t last = (end_ - 1) / kPageEntries;
  const std::uint64_t kept = hole_ % kPageEntries == 0 ? hole_ / kPageEntries : hole_ / kPageEntries + 1;
  DropPages(std::max(kept, begin_ / kPageEntries), last + 1);
  end_ = hole_;
  room_ = kept * kPageEntries;
  sweeping_ = false;
  hole_ = UINT64_MAX;
}

}  // namespace tierd::policies
