#include "policies/orders/permutation_prefix.h"

#include <algorithm>
#include <bit>

namespace tierd::orders {

PermutationPrefix::PermutationPrefix(std::uint32_t samples, std::uint32_t length)
    : samples_(samples), mask_(std::bit_ceil(4 * std::max<std::uint32_t>(std::min(samples, length), 16)) - 1), slots_(mask_ + std::size_t{1}), entries_(std::min(samples, length)) {}

PermutationPrefix::Slot& PermutationPrefix::Find(std::uint32_t position) {
  std::uint32_t at = position * 2654435769u >> 7 & mask_;
  while (slots_[at].stamp == stamp_ && slots_[at].position != position) at = (at + 1) & mask_;
  return slots_[at];
}

std::span<const std::uint32_t> PermutationPrefix::Draw(std::span<const std::uint32_t> outputs) {
  const auto length = static_cast<std::uint32_t>(std::min(outputs.size(), entries_.size()));
  if (++stamp_ == 0) {  // after 2^32 calls the old stamps would come back
    std::fill(slots_.begin(), slots_.end(), Slot());
    stamp_ = 1;
  }
  for (std::uint32_t i = 0; i < length; ++i) {
    const std::uint32_t from = i + 1 < samples_ ? i + outputs[i] % (samples_ - i) : i;
    const Slot& own = Find(i);
    const std::uint32_t moved = own.stamp == stamp_ ? own.value : i;
    Slot& slot = Find(from);
    entries_[i] = slot.stamp == stamp_ ? slot.value : from;
    slot = {stamp_, from, moved};
  }
  return {entries_.data(), length};
}

}  // namespace tierd::orders
