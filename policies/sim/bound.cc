#include "policies/sim/bound.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <vector>

namespace tierd::sim {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

// A set of numbers below a limit that knows its largest.
class NumberSet {
 public:
  explicit NumberSet(std::size_t limit) {
    do levels_.emplace_back(limit = limit / 64 + 1);
    while (limit > 1);
  }
  void Set(std::size_t number) {
    for (auto& level : levels_) level[number / 64] |= std::uint64_t{1} << number % 64, number /= 64;
  }
  void Clear(std::size_t number) {
    for (auto& level : levels_) {
      level[number / 64] &= ~(std::uint64_t{1} << number % 64);
      if (level[number / 64] != 0) return;
      number /= 64;
    }
  }
  // Of a set that is not empty.
  std::size_t Largest() const {
    std::size_t number = 0;
    for (std::size_t i = levels_.size(); i-- > 0;) number = number * 64 + 63 - static_cast<std::size_t>(std::countl_zero(levels_[i][number]));
    return number;
  }

 private:
  std::vector<std::vector<std::uint64_t>> levels_;
};

struct Sequence {
  std::span<const std::uint32_t> ids;  // those that count
  std::span<const std::uint64_t> sizes;
  std::uint64_t capacity = 0;
  bool cold = true;                    // the cache is empty at the beginning
  std::vector<std::uint32_t> before;   // the read of the same object before this one; kNone: there is none

  std::uint64_t SizeAt(std::size_t read) const { return sizes[ids[read]]; }
};

double LeastBytes(const Sequence& sequence) {
  const std::size_t reads = sequence.ids.size();
  std::vector<std::uint32_t> after(reads, kNone);
  for (std::size_t i = 0; i < reads; ++i) {
    if (sequence.before[i] != kNone) after[sequence.before[i]] = static_cast<std::uint32_t>(i);
  }
  std::vector<std::uint64_t> held(reads);  // bytes of the object that this read will find
  NumberSet holding(reads);
  std::uint64_t used = 0;
  const auto hold = [&](std::size_t read, std::uint64_t bytes) {
    if (bytes == 0) return;
    held[read] = bytes;
    used += bytes;
    holding.Set(read);
  };
  for (std::size_t i = 0; !sequence.cold && i < reads; ++i) {
    if (sequence.before[i] == kNone) hold(i, std::min(sequence.SizeAt(i), sequence.capacity - used));
  }
  double missed = 0;
  for (std::size_t i = 0; i < reads; ++i) {
    missed += static_cast<double>(sequence.SizeAt(i) - held[i]);
    if (held[i] > 0) used -= held[i], holding.Clear(i);
    if (after[i] != kNone) hold(after[i], sequence.SizeAt(i));
    while (used > sequence.capacity) {
      const std::size_t last = holding.Largest();
      const std::uint64_t less = std::min(held[last], used - sequence.capacity);
      held[last] -= less;
      used -= less;
      if (held[last] == 0) holding.Clear(last);
    }
  }
  return missed;
}

// How many of the costs, in part as well, can be paid for with `budget`.
double Affordable(std::vector<double>* costs, double budget) {
  std::sort(costs->begin(), costs->end());
  double count = 0;
  for (const double cost : *costs) {
    if (cost > budget) return cost > 0 ? count + budget / cost : count;
    budget -= cost;
    ++count;
  }
  return count;
}

double MostHitsByTime(const Sequence& sequence) {
  std::vector<double> costs;
  for (std::size_t i = 0; i < sequence.ids.size(); ++i) {
    if (sequence.before[i] == kNone && sequence.cold) continue;
    const std::size_t from = sequence.before[i] == kNone ? 0 : sequence.before[i];
    costs.push_back(static_cast<double>(sequence.SizeAt(i)) * static_cast<double>(i - from));
  }
  return Affordable(&costs, static_cast<double>(sequence.capacity) * static_cast<double>(sequence.ids.size()));
}

double MostHitsByEpoch(const Sequence& sequence) {
  double hits = 0;
  std::vector<double> costs;
  std::size_t begin = 0;
  const auto end_epoch = [&] {
    if (begin > 0 || !sequence.cold) hits += Affordable(&costs, static_cast<double>(sequence.capacity));
    costs.clear();
  };
  for (std::size_t i = 0; i < sequence.ids.size(); ++i) {
    if (sequence.before[i] != kNone && sequence.before[i] >= begin) {  // it comes twice
      end_epoch();
      begin = i;
    }
    costs.push_back(static_cast<double>(sequence.SizeAt(i)));
  }
  end_epoch();
  return hits;
}

}  // namespace

LeastSource LeastFromSource(std::span<const std::uint32_t> ids, std::span<const std::uint64_t> sizes, std::uint64_t capacity_bytes, std::size_t first) {
  Sequence sequence{.ids = ids.subspan(std::min(first, ids.size())), .sizes = sizes, .capacity = capacity_bytes, .cold = first == 0, .before = {}};
  std::vector<std::uint32_t> latest(sizes.size(), kNone);
  for (std::size_t i = 0; i < sequence.ids.size(); ++i) {
    sequence.before.push_back(latest[sequence.ids[i]]);
    latest[sequence.ids[i]] = static_cast<std::uint32_t>(i);
  }
  const bool alike = std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end() && !sizes.empty() && sizes[0] > 0;
  if (alike) {  // whole objects only
    sequence.capacity -= sequence.capacity % sizes[0];
    const double bytes = LeastBytes(sequence);
    return {.reads = bytes / static_cast<double>(sizes[0]), .bytes = bytes};
  }
  const double hits = std::min(MostHitsByTime(sequence), MostHitsByEpoch(sequence));
  return {.reads = static_cast<double>(sequence.ids.size()) - hits, .bytes = LeastBytes(sequence)};
}

}  // namespace tierd::sim
