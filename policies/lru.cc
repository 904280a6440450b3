// lru: the least recently used object leaves first. A yardstick and the right choice for reads with locality; under the permutations
// that training draws it is the worst of the classical policies (hit rate f + (1-f) ln(1-f)): see `freeze`.
//
// Exact, one order per tier: an access makes an object the newest of every tier it is in, an insertion makes it the newest of that
// tier. Every event costs O(1) amortised (use_log.h). State: 4 bytes per object for its size, and per tier that there is 4 per object and 4 to 12 per
// member. (One shared order would take less, but then a tier walks over the members of the other one: a single pinned object makes that unbounded.)
#include <algorithm>
#include <new>

#include "policies/builtin.h"
#include "policies/paged_array.h"
#include "policies/parameters.h"
#include "policies/prefetch.h"
#include "policies/use_log.h"

namespace tierd::policies {
namespace {

struct Lru {
  UseLog uses[TIERD_POLICY_TIERS];
  PagedArray<std::uint32_t> sizes;  // saturate
  std::uint64_t capacity[TIERD_POLICY_TIERS] = {0, 0};
  std::uint32_t smallest = UINT32_MAX;  // sizes ever known: where they are all alike, none is looked up
  std::uint32_t largest = 0;
  Announced announced;

  bool Covers(std::uint32_t id) const { return id < sizes.Limit(); }
  std::uint32_t SizeOf(std::uint32_t id) const { return smallest == largest ? largest : sizes[id]; }
};

Lru& Self(void* self) { return *static_cast<Lru*>(self); }

void* Create(const tierd_policy_env* env, char* error, std::size_t error_bytes) {
  if (!ReadParameters(env->parameters, {}, error, error_bytes)) return nullptr;  // it takes none
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
    if (self.capacity[tier] > 0) self.uses[tier].Cover(object->id);
  }
  self.smallest = std::min(self.smallest, bytes);
  self.largest = std::max(self.largest, bytes);
}

void Removed(void* p, std::uint32_t tier, std::uint32_t id) {
  if (tier < TIERD_POLICY_TIERS) Self(p).uses[tier].Remove(id);
}

void ObjectForgotten(void* p, std::uint32_t id) {
  for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) Removed(p, tier, id);
}

void Accessed(void* p, const tierd_access* access) {
  Lru& self = Self(p);
  self.uses[TIERD_TIER_RAM].Touch(access->id);
  if (!self.uses[TIERD_TIER_SSD].empty()) self.uses[TIERD_TIER_SSD].Touch(access->id);
}

void Inserted(void* p, std::uint32_t tier, std::uint32_t id) {
  Lru& self = Self(p);
  if (tier < TIERD_POLICY_TIERS && self.Covers(id)) self.uses[tier].Add(id);
}

void Capacity(void* p, std::uint32_t tier, std::uint64_t bytes) {
  if (tier < TIERD_POLICY_TIERS) Self(p).capacity[tier] = bytes;
}

int Admit(void* p, std::uint32_t tier, std::uint32_t id, std::uint64_t) {
  const Lru& self = Self(p);
  return tier < TIERD_POLICY_TIERS && self.Covers(id) && self.SizeOf(id) <= self.capacity[tier] ? 1 : 0;
}

std::size_t Victims(void* p, std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
  Lru& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS) return 0;
  std::uint64_t freed = 0;
  return self.uses[tier].Oldest(ids, max, [&](std::uint32_t id) {
    freed += self.SizeOf(id);
    return freed >= bytes;
  });
}

// Counted from the middle: the older half is worth nothing, so that reclaiming a region moves along at most what was used lately.
double Worth(void* p, std::uint32_t tier, std::uint32_t id) {
  const Lru& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS || !self.uses[tier].Has(id)) return 0;
  return std::max(0.0, 1 - 2 * self.uses[tier].Age(id));
}

void Soon(void* p, const std::uint32_t* ids, std::size_t count) {
  Lru& self = Self(p);
  for (const UseLog& uses : self.uses) {
    if (uses.empty()) continue;
    for (std::size_t i = 0; i < count; ++i) uses.PrefetchStamp(ids[i]);
    self.announced.ForEach([&](std::uint32_t id) { uses.PrefetchEntry(id); });
  }
  self.announced.Note(ids, count);
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
      .hint = nullptr,
  };
  return &kOps;
}

}  // namespace tierd::policies
