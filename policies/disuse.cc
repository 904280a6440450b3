#include "policies/disuse.h"

#include <bit>

namespace tierd::policies {

std::uint32_t Disuse::ClassOf(std::uint32_t gap) {
  gap = std::max(gap, kSmallest);
  const auto power = static_cast<std::uint32_t>(std::bit_width(gap)) - 1;  // 4..25
  return (power - 4) * kClassesPerPower + (gap >> (power - 3)) % kClassesPerPower;
}

void Disuse::Forget(std::uint32_t id) {
  if (id >= words_.Limit()) return;
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
    if ((words_[id] & Listed(tier)) != 0) std::erase(found_[tier], id);
    SetResident(tier, id, false);
  }
  words_[id] = 0;
}

void Disuse::Read(std::uint32_t id, std::int64_t now_ns) {
  if (id >= words_.Limit()) return;
  const bool first = (words_[id] & kRead) == 0;
  const std::uint32_t gap = Age(id);
  if (!first && gap <= Together() && now_ns - times_[(reads_ - gap) % kVisitReads] < kVisitNs) return Stamp(id);  // a piece more
  ++reads_;
  times_[reads_ % kVisitReads] = now_ns;
  fresh_ += ((first ? 1.0 : 0.0) - fresh_) * kFresh;
  Stamp(id);
  words_[id] |= first ? kRead : kReadAgain;
  if (first) return;
  const std::uint32_t number = ClassOf(gap);
  classes_[number] = {reads_, classes_[number].last};
  top_ = std::max(top_, number + 1);
}

void Disuse::SetResident(std::uint32_t tier, std::uint32_t id, bool resident) {
  if (id >= words_.Limit()) return;
  if (((words_[id] & In(tier)) != 0) == resident) return;
  if (!resident) {
    words_[id] &= ~In(tier);
    --residents_;
    return;
  }
  if ((words_[id] & (kRead | In(TIERD_TIER_RAM) | In(TIERD_TIER_SSD))) == 0) Stamp(id);  // brought ahead of its first read
  words_[id] |= In(tier);
  ++residents_;
}

std::uint32_t Disuse::Longest() {
  const auto counts = [this](std::uint32_t number) { return classes_[number].before != 0 && reads_ - classes_[number].before <= Edge(number) / 4; };
  while (top_ > 0 && !counts(top_ - 1)) --top_;
  return top_ == 0 || fresh_ >= kMostFresh ? kNobody : Beyond(Edge(top_ - 1));
}

}  // namespace tierd::policies
