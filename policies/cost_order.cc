#include "policies/cost_order.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tierd::policies {

std::uint32_t CostOrder::ClassOf(std::uint32_t id) const {
  const double bytes = std::max<double>(1, timeline_.BytesOf(id));
  return static_cast<std::uint32_t>(std::clamp(2 * std::log2(1 + operation_bytes_ / bytes), 0.0, kClasses - 1.0));
}

double CostOrder::Gain(std::uint32_t id, std::uint64_t next_use) const {
  if (next_use == Timeline::kNever) return 0;
  return (operation_bytes_ + timeline_.BytesOf(id)) / (1 + static_cast<double>(next_use - timeline_.now()));
}

void CostOrder::Add(std::uint32_t id) {
  const std::uint64_t use = timeline_.NextUse(id, false);
  if (use == Timeline::kNever) return;
  std::vector<Entry>& heap = heaps_[ClassOf(id)];
  heap.push_back({use, id});
  std::push_heap(heap.begin(), heap.end(), Sooner);
  if (++entries_ > tidy_at_) Tidy();
}

bool CostOrder::Settle(std::vector<Entry>* heap) {
  while (!heap->empty() && !Holds(heap->front())) {
    std::pop_heap(heap->begin(), heap->end(), Sooner);
    heap->pop_back();
    --entries_;
  }
  return !heap->empty();
}

// Leaves those that hold, each once.
void CostOrder::Tidy() {
  entries_ = 0;
  for (std::vector<Entry>& heap : heaps_) {
    std::erase_if(heap, [this](const Entry& entry) { return !Holds(entry); });
    std::sort(heap.begin(), heap.end(), [](const Entry& a, const Entry& b) { return Sooner(b, a); });
    heap.erase(std::unique(heap.begin(), heap.end(), [](const Entry& a, const Entry& b) { return a.id == b.id && a.use == b.use; }), heap.end());
    entries_ += heap.size();  // sorted, last first: a heap as it is
  }
  tidy_at_ = 2 * entries_ + 4096;
}

bool CostOrder::Least(std::uint64_t bytes, std::size_t most, std::vector<std::uint32_t>* ids, double* gain) {
  std::uint64_t freed = 0;
  *gain = 0;
  for (Timeline::Last last(timeline_, tier_); last.id() != TIERD_NO_OBJECT && last.slot() == Timeline::kNever && freed < bytes && ids->size() < most; last.Next()) {
    freed += timeline_.BytesOf(last.id());
    ids->push_back(last.id());
  }
  taken_.clear();
  while (freed < bytes && ids->size() < most) {
    std::uint32_t least_class = kClasses;
    double least = 0;
    for (std::uint32_t c = 0; c < kClasses; ++c) {
      if (heaps_[c].empty() || !Settle(&heaps_[c])) continue;
      const Entry& top = heaps_[c].front();
      const double worth = Gain(top.id, top.use) / std::max<double>(1, timeline_.BytesOf(top.id));
      if (least_class == kClasses || worth < least) least_class = c, least = worth;
    }
    if (least_class == kClasses) break;
    std::vector<Entry>& heap = heaps_[least_class];
    const Entry top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), Sooner);
    heap.pop_back();
    const bool twice = !taken_.empty() && taken_.back().first == least_class && taken_.back().second.id == top.id;
    if (twice) {
      --entries_;
      continue;
    }
    taken_.emplace_back(least_class, top);
    ids->push_back(top.id);
    freed += timeline_.BytesOf(top.id);
    *gain += Gain(top.id, top.use);
  }
  // They are residents until the host says that they have left.
  for (const auto& [number, entry] : taken_) {
    heaps_[number].push_back(entry);
    std::push_heap(heaps_[number].begin(), heaps_[number].end(), Sooner);
  }
  return freed >= bytes;
}

}  // namespace tierd::policies
