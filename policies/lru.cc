// lru: the least recently used object leaves first. A yardstick and the right choice for reads with locality; under the permutations
// that training draws it is the worst of the classical policies (hit rate f + (1-f) ln(1-f)): see `freeze`.
//
// Exact, one list per tier: an access makes an object the newest of every tier it is in, an insertion makes it the newest of that
// tier. Every event costs O(1). State: 24 bytes per object for both tiers, no allocation per event beyond a page of new ids. (One shared
// list would take 12, but then a tier walks over the members of the other one: a single pinned object makes that unbounded.)
#include <algorithm>
#include <new>

#include "policies/builtin.h"
#include "policies/paged_array.h"

namespace tierd::policies {
namespace {

constexpr std::uint32_t kAbsent = 0xffffffffu;  // in `older`: not in this tier
constexpr std::uint32_t kEnd = 0xfffffffeu;     // no neighbour on this side

constexpr std::uint32_t kScoutAhead = 12;
constexpr std::uint32_t kScoutRounds = 4096;

struct Node {
  std::uint32_t newer[TIERD_POLICY_TIERS] = {kAbsent, kAbsent};
  std::uint32_t older[TIERD_POLICY_TIERS] = {kAbsent, kAbsent};
  std::uint32_t bytes = 0;  // saturates
  std::uint32_t used = 0;   // Lru::uses at the last use; wraps, only ages are taken
};
static_assert(sizeof(Node) == 24);

struct Lru {
  PagedArray<Node> nodes;
  std::uint32_t newest[TIERD_POLICY_TIERS] = {kEnd, kEnd};
  std::uint32_t oldest[TIERD_POLICY_TIERS] = {kEnd, kEnd};
  std::uint64_t capacity[TIERD_POLICY_TIERS] = {0, 0};
  std::uint32_t uses = 0;
  // Some victims ahead of the oldest: its line is asked for long before its turn. Nothing depends on where it is.
  std::uint32_t scout[TIERD_POLICY_TIERS] = {kEnd, kEnd};
  std::uint32_t scouted[TIERD_POLICY_TIERS] = {0, 0};  // steps until it starts from the oldest again

  bool Covers(std::uint32_t id) const { return id < nodes.Limit(); }
  bool IsIn(std::uint32_t tier, std::uint32_t id) const { return nodes[id].older[tier] != kAbsent; }

  void PushNewest(std::uint32_t tier, std::uint32_t id) {
    nodes[id].newer[tier] = kEnd;
    nodes[id].older[tier] = newest[tier];
    (newest[tier] == kEnd ? oldest[tier] : nodes[newest[tier]].newer[tier]) = id;
    newest[tier] = id;
  }
  // Memory answers in some 100 ns, and every victim's node says who is next: without this each eviction waits for the one before.
  void Scout(std::uint32_t tier, std::uint32_t unlinked, std::uint32_t newer, bool was_oldest) {
    std::uint32_t& at = scout[tier];
    if (at == unlinked) at = newer;
    if (!was_oldest) return;
    if (at == kEnd || scouted[tier]-- == 0) {
      at = newer;
      scouted[tier] = kScoutRounds;
      for (std::uint32_t i = 0; i < kScoutAhead && at != kEnd; ++i) at = nodes[at].newer[tier];
    } else {
      at = nodes[at].newer[tier];
    }
    if (at != kEnd) __builtin_prefetch(&nodes[at], 1);
  }
  void Unlink(std::uint32_t tier, std::uint32_t id) {
    Node& node = nodes[id];
    const std::uint32_t newer = node.newer[tier];
    const std::uint32_t older = node.older[tier];
    (newer == kEnd ? newest[tier] : nodes[newer].older[tier]) = older;
    (older == kEnd ? oldest[tier] : nodes[older].newer[tier]) = newer;
    Scout(tier, id, newer, older == kEnd);
    node.newer[tier] = node.older[tier] = kAbsent;
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
  Self(p).nodes.Cover(object->id);
  Self(p).nodes[object->id].bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(object->bytes, UINT32_MAX));
}

void Removed(void* p, std::uint32_t tier, std::uint32_t id) {
  Lru& self = Self(p);
  if (tier < TIERD_POLICY_TIERS && self.Covers(id) && self.IsIn(tier, id)) self.Unlink(tier, id);
}

void ObjectForgotten(void* p, std::uint32_t id) {
  Lru& self = Self(p);
  if (!self.Covers(id)) return;
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) Removed(p, tier, id);
  self.nodes[id] = Node();
}

void Accessed(void* p, const tierd_access* access) {
  Lru& self = Self(p);
  const std::uint32_t id = access->id;
  if (!self.Covers(id)) return;
  self.nodes[id].used = ++self.uses;
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
    if (!self.IsIn(tier, id) || self.newest[tier] == id) continue;
    self.Unlink(tier, id);
    self.PushNewest(tier, id);
  }
}

void Inserted(void* p, std::uint32_t tier, std::uint32_t id) {
  Lru& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS || !self.Covers(id) || self.IsIn(tier, id)) return;
  // What is brought up before anyone asked for it (prefetch, a restart) counts as used now; a demoted object keeps its age.
  const bool elsewhere = self.IsIn(1 - tier, id);
  if (!elsewhere && self.nodes[id].used == 0) self.nodes[id].used = ++self.uses;
  self.PushNewest(tier, id);
}

void Capacity(void* p, std::uint32_t tier, std::uint64_t bytes) {
  if (tier < TIERD_POLICY_TIERS) Self(p).capacity[tier] = bytes;
}

int Admit(void* p, std::uint32_t tier, std::uint32_t id, std::uint64_t) {
  const Lru& self = Self(p);
  return tier < TIERD_POLICY_TIERS && self.Covers(id) && self.nodes[id].bytes <= self.capacity[tier] ? 1 : 0;
}

std::size_t Victims(void* p, std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
  const Lru& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS) return 0;
  std::size_t count = 0;
  std::uint64_t freed = 0;
  for (std::uint32_t id = self.oldest[tier]; id != kEnd && count < max && freed < bytes; id = self.nodes[id].newer[tier]) {
    ids[count++] = id;
    freed += self.nodes[id].bytes;
  }
  return count;
}

// Recency between 0 (as old as the oldest) and 1 (just used), counted from the middle: the older half is worth nothing, so that
// reclaiming a region moves along at most what was used lately.
double Worth(void* p, std::uint32_t tier, std::uint32_t id) {
  const Lru& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS || !self.Covers(id) || !self.IsIn(tier, id)) return 0;
  const double span = self.uses - self.nodes[self.oldest[tier]].used;
  const double age = self.uses - self.nodes[id].used;
  return span <= 0 ? 1 : std::max(0.0, 1 - 2 * age / span);
}

void Soon(void* p, const std::uint32_t* ids, std::size_t count) {
  const Lru& self = Self(p);
  for (std::size_t i = 0; i < count; ++i) {
    if (!self.Covers(ids[i])) continue;
    const char* node = reinterpret_cast<const char*>(&self.nodes[ids[i]]);
    __builtin_prefetch(node, 1);
    __builtin_prefetch(node + sizeof(Node) - 1, 1);
  }
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
