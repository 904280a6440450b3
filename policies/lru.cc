// lru: the least recently used object leaves first. A yardstick and the right choice for reads with locality; under the permutations
// that training draws it is the worst of the classical policies (hit rate f + (1-f) ln(1-f)): see `freeze`.
//
// Exact, one list per tier: an access makes an object the newest of every tier it is in, an insertion makes it the newest of that
// tier. Every event costs O(1), no allocation per event beyond a page of new ids. State per object: 8 bytes per tier that there is,
// 4 for its size, 4 for its age on the SSD tier; lists apart, so that a read of what only RAM knows touches one line. (One shared
// list would take less, but then a tier walks over the members of the other one: a single pinned object makes that unbounded.)
#include <algorithm>
#include <new>

#include "policies/builtin.h"
#include "policies/paged_array.h"
#include "policies/prefetch.h"

namespace tierd::policies {
namespace {

constexpr std::uint32_t kAbsent = 0xffffffffu;  // in `older`: not in this list
constexpr std::uint32_t kEnd = 0xfffffffeu;     // no neighbour on this side

constexpr std::uint32_t kScoutAhead = 12;
constexpr std::uint32_t kScoutRounds = 4096;

struct Links {
  std::uint32_t newer = kAbsent;
  std::uint32_t older = kAbsent;
};

// The objects of one tier by age.
class AgeList {
 public:
  bool empty() const { return newest_ == kEnd; }
  std::uint32_t newest() const { return newest_; }
  std::uint32_t oldest() const { return oldest_; }  // kEnd when empty
  std::uint32_t NewerThan(std::uint32_t id) const { return links_[id].newer; }
  bool Has(std::uint32_t id) const { return id < links_.Limit() && links_[id].older != kAbsent; }

  // Makes room for the id's links; otherwise the first insertion does, for all ids below as well.
  void Cover(std::uint32_t id) { links_.Cover(id); }

  void PushNewest(std::uint32_t id) {
    links_.Cover(id);
    links_[id] = {kEnd, newest_};
    (newest_ == kEnd ? oldest_ : links_[newest_].newer) = id;
    newest_ = id;
  }
  void Unlink(std::uint32_t id) {
    const Links own = links_[id];
    (own.newer == kEnd ? newest_ : links_[own.newer].older) = own.older;
    (own.older == kEnd ? oldest_ : links_[own.older].newer) = own.newer;
    links_[id] = {kAbsent, kAbsent};
    Scout(id, own.newer, own.older == kEnd);
  }
  // Cache lines only, in two steps: the object's own, and when that has come, its neighbours'.
  void Prefetch(std::uint32_t id) const {
    if (id < links_.Limit()) PrefetchLine(&links_[id]);
  }
  void PrefetchNeighbours(std::uint32_t id) const {
    if (!Has(id)) return;
    const Links own = links_[id];
    if (own.newer != kEnd) PrefetchLine(&links_[own.newer]);
    if (own.older != kEnd) PrefetchLine(&links_[own.older]);
  }

 private:
  // Memory answers in some 100 ns, and every victim says who is next: without this each eviction waits for the one before.
  void Scout(std::uint32_t unlinked, std::uint32_t newer, bool was_oldest) {
    if (scout_ == unlinked) scout_ = newer;
    if (!was_oldest) return;
    if (scout_ == kEnd || scouted_-- == 0) {
      scout_ = newer;
      scouted_ = kScoutRounds;
      for (std::uint32_t i = 0; i < kScoutAhead && scout_ != kEnd; ++i) scout_ = links_[scout_].newer;
    } else {
      scout_ = links_[scout_].newer;
    }
    if (scout_ != kEnd) PrefetchLine(&links_[scout_]);
  }

  PagedArray<Links> links_;
  std::uint32_t newest_ = kEnd;
  std::uint32_t oldest_ = kEnd;
  // Some victims ahead of the oldest: its line is asked for long before its turn. Nothing depends on where it is.
  std::uint32_t scout_ = kEnd;
  std::uint32_t scouted_ = 0;  // steps until it starts from the oldest again
};

constexpr std::size_t kAnnounced = 64;

struct Lru {
  AgeList lists[TIERD_POLICY_TIERS];
  PagedArray<std::uint32_t> sizes;  // saturate
  PagedArray<std::uint32_t> used;   // of members of the SSD tier: `uses` at the last use; wraps, only ages are taken
  std::uint64_t capacity[TIERD_POLICY_TIERS] = {0, 0};
  std::uint32_t uses = 0;
  std::uint32_t smallest = UINT32_MAX;  // sizes ever known: where they are all alike, none is looked up
  std::uint32_t largest = 0;
  std::uint32_t announced[kAnnounced] = {};  // by the last soon()
  std::size_t announced_count = 0;

  bool Covers(std::uint32_t id) const { return id < sizes.Limit(); }
  std::uint32_t SizeOf(std::uint32_t id) const { return smallest == largest ? largest : sizes[id]; }
  void NoteUse(std::uint32_t id) {
    used.Cover(id);
    used[id] = ++uses;
  }
};

Lru& Self(void* self) { return *static_cast<Lru*>(self); }

void* Create(const tierd_policy_env* env, char*, std::size_t) {
  auto* self = new Lru;
  std::copy_n(env->capacity_bytes, TIERD_POLICY_TIERS, self->capacity);
  return self;
}
void Destroy(void* self) { delete &Self(self); }

void ObjectKnown(void* p, const tierd_object* object) {
  Lru& self = Self(p);
  const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(object->bytes, UINT32_MAX));
  self.sizes.Cover(object->id);
  self.sizes[object->id] = bytes;
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
    if (self.capacity[tier] > 0) self.lists[tier].Cover(object->id);
  }
  if (self.capacity[TIERD_TIER_SSD] > 0) self.used.Cover(object->id);
  self.smallest = std::min(self.smallest, bytes);
  self.largest = std::max(self.largest, bytes);
}

void Removed(void* p, std::uint32_t tier, std::uint32_t id) {
  if (tier < TIERD_POLICY_TIERS && Self(p).lists[tier].Has(id)) Self(p).lists[tier].Unlink(id);
}

void ObjectForgotten(void* p, std::uint32_t id) {
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) Removed(p, tier, id);
}

void Accessed(void* p, const tierd_access* access) {
  Lru& self = Self(p);
  const std::uint32_t id = access->id;
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
    AgeList& list = self.lists[tier];
    if (list.empty() || !list.Has(id)) continue;
    if (tier == TIERD_TIER_SSD) self.NoteUse(id);
    if (list.newest() == id) continue;
    list.Unlink(id);
    list.PushNewest(id);
  }
}

void Inserted(void* p, std::uint32_t tier, std::uint32_t id) {
  Lru& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS || !self.Covers(id) || self.lists[tier].Has(id)) return;
  if (tier == TIERD_TIER_SSD) self.NoteUse(id);
  self.lists[tier].PushNewest(id);
}

void Capacity(void* p, std::uint32_t tier, std::uint64_t bytes) {
  if (tier < TIERD_POLICY_TIERS) Self(p).capacity[tier] = bytes;
}

int Admit(void* p, std::uint32_t tier, std::uint32_t id, std::uint64_t) {
  const Lru& self = Self(p);
  return tier < TIERD_POLICY_TIERS && self.Covers(id) && self.SizeOf(id) <= self.capacity[tier] ? 1 : 0;
}

std::size_t Victims(void* p, std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
  const Lru& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS) return 0;
  const AgeList& list = self.lists[tier];
  std::size_t count = 0;
  std::uint64_t freed = 0;
  for (std::uint32_t id = list.oldest(); id != kEnd && count < max && freed < bytes; id = list.NewerThan(id)) {
    ids[count++] = id;
    freed += self.SizeOf(id);
  }
  return count;
}

// Of the SSD tier: recency between 0 (as old as the oldest) and 1 (just used), counted from the middle: the older half is worth nothing, so
// that reclaiming a region moves along at most what was used lately. RAM is not reclaimed by worth.
double Worth(void* p, std::uint32_t tier, std::uint32_t id) {
  const Lru& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS || !self.lists[tier].Has(id)) return 0;
  if (tier != TIERD_TIER_SSD) return 1;
  const double span = self.uses - self.used[self.lists[tier].oldest()];
  const double age = self.uses - self.used[id];
  return span <= 0 ? 1 : std::max(0.0, 1 - 2 * age / span);
}

void Soon(void* p, const std::uint32_t* ids, std::size_t count) {
  Lru& self = Self(p);
  for (const AgeList& list : self.lists) {
    if (list.empty()) continue;
    for (std::size_t i = 0; i < count; ++i) list.Prefetch(ids[i]);
    // Those announced before are there by now.
    for (std::size_t i = 0; i < self.announced_count; ++i) list.PrefetchNeighbours(self.announced[i]);
  }
  self.announced_count = std::min(count, kAnnounced);
  std::copy_n(ids, self.announced_count, self.announced);
}

}  // namespace

const tierd_policy_ops* LruPolicy() {
  static constexpr tierd_policy_ops kOps = {
      .abi_version = TIERD_POLICY_ABI_VERSION,
      .struct_size = sizeof(tierd_policy_ops),
      .name = "lru",
      .summary = "the least recently used object leaves first",
      .create = Create,
      .destroy = Destroy,
      .object_known = ObjectKnown,
      .object_forgotten = ObjectForgotten,
      .accessed = Accessed,
      .inserted = Inserted,
      .removed = Removed,
      .capacity = Capacity,
      .epoch_boundary = nullptr,
      .plan = nullptr,
      .admit = Admit,
      .victims = Victims,
      .next = nullptr,
      .worth = Worth,
      .admit_for = nullptr,
      .soon = Soon,
  };
  return &kOps;
}

}  // namespace tierd::policies
