#include "policies/timeline.h"

#include <algorithm>
#include <bit>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tierd::policies {
namespace {
constexpr int kGivenUpAtOnce = 256;          // slots, of some 0.1 us
constexpr std::uint32_t kLeastFound = 16;  // uses that say where the readers are, however small the window is
}

inline unsigned Timeline::MarkedIn(const std::uint32_t* block, std::uint32_t tier) {
#ifdef __SSE2__
  // Four at a time: the mark becomes the sign, and those are taken together.
  const __m128i left = _mm_cvtsi32_si128(static_cast<int>(tier));
  const auto four = [&](unsigned i) {
    return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(_mm_sll_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + i)), left)))) << i;
  };
  return four(0) | four(4) | four(8) | four(12);
#else
  unsigned marked = 0;
  for (unsigned i = 0; i < kBlock; ++i) marked |= (block[i] << tier >> 31) << i;
  return marked;
#endif
}

void Timeline::Know(std::uint32_t id, std::uint64_t bytes) {
  if (id > kMaxId) return;
  objects_.Cover(id);
  objects_[id].known = 1;
  objects_[id].bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, UINT32_MAX));
  smallest_ = std::min(smallest_, objects_[id].bytes);
  largest_ = std::max(largest_, objects_[id].bytes);
}

void Timeline::Forget(std::uint32_t id) {
  if (!IsKnown(id)) return;
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) SetResident(tier, id, false);
  while (objects_[id].planned) Pass(id, kVoid);
  objects_[id] = Object();
  AdvanceFloor();  // if its use was the first
}

void Timeline::SetResident(std::uint32_t tier, std::uint32_t id, bool resident) {
  // Who is used last was looked for before it leaves: its slot is known without its object.
  const std::uint64_t last = top_[tier] - 1;
  if (!resident && last - floor_ < end_ - floor_ && (Word(last) & (Mark(tier) | kNamed)) == (Mark(tier) | kNamed) && (Word(last) & kRest) == id) return ClearMark(tier, last);
  if (!IsKnown(id) || IsResident(tier, id) == resident) return;
  resident ? PlaceResident(tier, id) : UnplaceResident(tier, id);
}

void Timeline::SetIdlePlace(std::uint32_t tier, std::uint32_t id, std::size_t place) {
  if (tier == 0) objects_[id].next = static_cast<std::uint32_t>(place) & kRest;
  else objects_[id].last = static_cast<std::uint32_t>(place) & kRest;
}

void Timeline::PlaceResident(std::uint32_t tier, std::uint32_t id) {
  if (objects_[id].planned) return SetMark(tier, Whole(objects_[id].next));
  objects_[id].idle |= 1u << tier;
  SetIdlePlace(tier, id, idle_[tier].size());
  idle_[tier].push_back(id);
}

void Timeline::UnplaceResident(std::uint32_t tier, std::uint32_t id) {
  if (objects_[id].planned) return ClearMark(tier, Whole(objects_[id].next));
  objects_[id].idle &= ~(1u << tier);
  const std::uint32_t place = tier == 0 ? objects_[id].next : objects_[id].last;
  const std::uint32_t moved = idle_[tier].back();
  idle_[tier][place] = moved;
  SetIdlePlace(tier, moved, place);
  idle_[tier].pop_back();
}

void Timeline::SetMark(std::uint32_t tier, std::uint64_t slot) {
  Page& page = *pages_[slot / kPageSlots % kPages];
  const std::uint32_t at = slot % kPageSlots;
  page.words[at] |= Mark(tier);
  page.blocks[tier][at / kBlock / 64] |= std::uint64_t{1} << (at / kBlock % 64);
  ++page.marked[tier];
  top_[tier] = std::max(top_[tier], slot + 1);
}

void Timeline::ClearMark(std::uint32_t tier, std::uint64_t slot) {
  Page& page = *pages_[slot / kPageSlots % kPages];
  const std::uint32_t at = slot % kPageSlots;
  page.words[at] &= ~Mark(tier);
  --page.marked[tier];
  if (MarkedIn(page.words + at / kBlock * kBlock, tier) == 0) page.blocks[tier][at / kBlock / 64] &= ~(std::uint64_t{1} << (at / kBlock % 64));
}

std::uint32_t Timeline::IdAt(std::uint64_t slot) const {
  std::uint32_t word = Word(slot);
  while ((word & kNamed) == 0) word = Word(Whole(word & kRest));
  return word & kRest;
}

void Timeline::Append(std::span<const std::uint32_t> ids) {
  for (const std::uint32_t id : ids) {
    if (!IsKnown(id)) continue;
    if (end_ - floor_ >= kMaxSlots) return;
    std::unique_ptr<Page>& page = pages_[end_ / kPageSlots % kPages];
    if (page == nullptr) {
      if (spare_.empty()) spare_.push_back(std::make_unique<Page>());
      page = std::move(spare_.back());
      spare_.pop_back();
    }
    const std::uint64_t slot = end_++;
    Word(slot) = kNamed | id;
    Object& object = objects_[id];
    const auto low = static_cast<std::uint32_t>(slot) & kRest;
    if (!object.planned) {
      const std::uint32_t tiers = object.idle;
      for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
        if ((tiers >> tier & 1) != 0) UnplaceResident(tier, id);
      }
      object.planned = 1;
      object.next = low;
      for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
        if ((tiers >> tier & 1) != 0) SetMark(tier, slot);
      }
    } else if (!object.more) {
      object.more = 1;
      object.following = low;
    } else {
      Word(Whole(object.last)) = low;
    }
    object.last = low;
  }
}

void Timeline::Withdraw() {
  for (std::uint32_t id = 0; id < objects_.Limit(); ++id) {
    while (objects_[id].planned) Pass(id, kVoid);
  }
  AdvanceFloor();
}

void Timeline::Pass(std::uint32_t id, std::uint32_t left) {
  Object& object = objects_[id];
  const std::uint64_t slot = Whole(object.next);
  const std::uint32_t tiers = MarksOf(Word(slot));
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
    if ((tiers >> tier & 1) != 0) ClearMark(tier, slot);
  }
  Word(slot) = left;
  if (!object.more) {
    object.planned = 0;
  } else {
    std::uint32_t& next = Word(Whole(object.following));
    object.next = object.following;
    object.more = (next & kNamed) == 0;
    if (object.more) object.following = next & kRest;
    next = kNamed | id;
  }
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
    if ((tiers >> tier & 1) != 0) PlaceResident(tier, id);
  }
}

bool Timeline::Consume(std::uint32_t id) {
  if (floor_ < found_at_) GiveUpTowardsFound();
  if (!IsKnown(id)) return false;
  while (objects_[id].planned && Whole(objects_[id].next) < found_at_) ++missed_, Pass(id, kVoid);
  if (!objects_[id].planned) return false;
  const std::uint64_t slot = Whole(objects_[id].next);
  // Readers do not run a window ahead of a use that is still to come: most of a window behind it has been, so it will not come.
  while (floor_ >= found_at_ && slot >= floor_ + window_ && 4 * ahead_ >= std::uint64_t{3} * window_) GiveUpFirst();
  if (slot >= now() + window_) return FoundBy(id, slot);
  beyond_votes_ -= beyond_votes_ > 0 ? 1 : 0;
  Pass(id, kConsumed);
  ++ahead_;
  if (slot == floor_) AdvanceFloor();
  return true;
}

void Timeline::GiveUpFirst() {
  ++missed_;
  Pass(IdAt(floor_), kVoid);
  AdvanceFloor();
}

void Timeline::GiveUpTowardsFound() {
  AdvanceFloor();
  for (int i = 0; i < kGivenUpAtOnce && floor_ < found_at_; ++i) GiveUpFirst();
  if (floor_ >= found_at_) ++found_;
}

bool Timeline::FoundBy(std::uint32_t id, std::uint64_t slot) {
  const std::uint32_t half = std::max(window_ / 2, 1u);
  if (beyond_votes_ == 0) {
    for (const std::uint32_t other : beyond_) objects_[other].beyond = 0;
    beyond_.clear();
    beyond_at_ = slot;
  }
  if (objects_[id].beyond != 0) return false;
  if (slot + half < beyond_at_ || slot >= beyond_at_ + half) {
    --beyond_votes_;
    return false;
  }
  objects_[id].beyond = 1;
  beyond_.push_back(id);
  if (++beyond_votes_ < std::max(half, kLeastFound)) return false;
  // Who was forgotten meanwhile has no mark any more.
  found_at_ = slot;
  for (const std::uint32_t other : beyond_) {
    if (objects_[other].beyond != 0 && objects_[other].planned != 0) found_at_ = std::min(found_at_, Whole(objects_[other].next));
  }
  for (const std::uint32_t other : beyond_) {
    const bool still = objects_[other].beyond != 0;
    objects_[other].beyond = 0;
    if (!still || objects_[other].planned == 0 || Whole(objects_[other].next) >= found_at_ + window_) continue;
    Pass(other, kConsumed);
    ++ahead_;
  }
  beyond_.clear();
  beyond_votes_ = 0;
  GiveUpTowardsFound();
  return true;
}

void Timeline::AdvanceFloor() {
  while (floor_ < end_) {
    const std::uint32_t word = Word(floor_);
    if (word != kConsumed && word != kVoid) return;
    if (word == kConsumed) --ahead_;
    if (++floor_ % kPageSlots != 0) continue;
    std::unique_ptr<Page>& page = pages_[(floor_ / kPageSlots - 1) % kPages];
    if (spare_.empty()) spare_.push_back(std::move(page));
    page.reset();
  }
}

std::uint64_t Timeline::NextUse(std::uint32_t id, bool after_this) const {
  if (!IsKnown(id) || !objects_[id].planned) return kNever;
  const std::uint64_t slot = Whole(objects_[id].next);
  if (!after_this || slot - now() >= window_) return slot;
  return objects_[id].more ? Whole(objects_[id].following) : kNever;
}

std::uint32_t Timeline::MissingAt(std::uint64_t slot, std::uint32_t tier) const {
  if (slot < floor_ || slot >= end_) return TIERD_NO_OBJECT;
  const std::uint32_t word = Word(slot);
  if (word == kConsumed || word == kVoid || (word & Mark(tier)) != 0) return TIERD_NO_OBJECT;
  const std::uint32_t id = IdAt(slot);
  return IsResident(tier, id) ? TIERD_NO_OBJECT : id;  // a later use of a resident
}

Timeline::Last::Last(const Timeline& timeline, std::uint32_t tier) : timeline_(timeline), tier_(tier), idle_(timeline.idle_[tier].size()), below_(timeline.top_[tier]) {
  const bool idle = idle_ > 0;
  Next();
  if (idle) return;
  timeline.top_[tier] = below_;
  if (id_ != TIERD_NO_OBJECT) ++timeline.top_[tier];
}

void Timeline::Last::Next() {
  id_ = TIERD_NO_OBJECT;
  slot_ = kNever;
  if (idle_ > 0) {
    id_ = timeline_.idle_[tier_][--idle_];
    return;
  }
  Find();
}

// The last marked slot below below_: by pages that have any, by blocks, by words.
void Timeline::Last::Find() {
  const Timeline& t = timeline_;
  while (below_ > t.floor_) {
    const std::uint64_t number = (below_ - 1) / kPageSlots;
    const Page& page = *t.pages_[number % kPages];
    std::uint64_t block = (below_ - 1) % kPageSlots / kBlock;
    unsigned marked = 0;
    if (page.marked[tier_] > 0) {
      marked = MarkedIn(page.words + block * kBlock, tier_) & (~0u >> (31 - (below_ - 1) % kBlock));
      if (marked == 0) {
        // The next block below that has one.
        std::uint64_t group = block / 64;
        std::uint64_t bits = page.blocks[tier_][group] & ((std::uint64_t{1} << (block % 64)) - 1);
        while (bits == 0 && group > 0) bits = page.blocks[tier_][--group];
        if (bits != 0) {
          block = group * 64 + 63 - static_cast<unsigned>(std::countl_zero(bits));
          marked = MarkedIn(page.words + block * kBlock, tier_);
        }
      }
    }
    if (marked == 0) {
      below_ = std::max(number * kPageSlots, t.floor_);
      continue;
    }
    const std::uint64_t at = block * kBlock + 31 - static_cast<unsigned>(std::countl_zero(marked));
    below_ = slot_ = number * kPageSlots + at;
    id_ = page.words[at] & kRest;
    return;
  }
}

}  // namespace tierd::policies
