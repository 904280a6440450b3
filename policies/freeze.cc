// freeze: fill once, never evict. Under a fresh permutation per epoch no policy without knowledge of the order beats it (Theorem 1 of
// the training-order notes): every epoch hits the resident share C/N, while anything that evicts throws away what this very epoch
// still needs. Objects enter in the order of first use as long as they fit; what is removed by invalidation makes room again, and so does what the host takes away from a
// source that nobody reads any more: that its readers are gone is not for a policy to see, which hears of no time without events.
//
// The two tiers are exclusive once the dataset does not fit on the SSD: a copy on both is a place that another object does not get.
// State: 4 bytes per object.
#include <algorithm>
#include <new>

#include "policies/builtin.h"
#include "policies/paged_array.h"
#include "policies/parameters.h"

namespace tierd::policies {
namespace {

// bits 0-29: size in units of 16 bytes, rounded up; 30: in RAM; 31: known.
constexpr std::uint32_t kSizeMask = (1u << 30) - 1;
constexpr std::uint32_t kInRam = 1u << 30;
constexpr std::uint32_t kKnown = 1u << 31;
constexpr std::uint64_t kUnit = 16;

struct Freeze {
  PagedArray<std::uint32_t> objects;
  std::uint64_t capacity[TIERD_POLICY_TIERS] = {0, 0};
  std::uint64_t known_bytes = 0;

  std::uint64_t BytesOf(std::uint32_t id) const { return (objects[id] & kSizeMask) * kUnit; }
};

Freeze& Self(void* self) { return *static_cast<Freeze*>(self); }

void* Create(const tierd_policy_env* env, char* error, std::size_t error_bytes) {
  if (!ReadParameters(env->parameters, {}, error, error_bytes)) return nullptr;  // it takes none
  auto* self = new Freeze;
  std::copy_n(env->capacity_bytes, TIERD_POLICY_TIERS, self->capacity);
  return self;
}
void Destroy(void* self) { delete &Self(self); }

void ObjectKnown(void* p, const tierd_object* object) {
  Freeze& self = Self(p);
  self.objects.Cover(object->id);
  std::uint32_t& word = self.objects[object->id];
  self.known_bytes -= self.BytesOf(object->id);
  const std::uint64_t units = std::min<std::uint64_t>((object->bytes + kUnit - 1) / kUnit, kSizeMask);
  word = kKnown | (word & kInRam) | static_cast<std::uint32_t>(units);
  self.known_bytes += self.BytesOf(object->id);
}

void ObjectForgotten(void* p, std::uint32_t id) {
  Freeze& self = Self(p);
  if (id >= self.objects.Limit()) return;
  self.known_bytes -= self.BytesOf(id);
  self.objects[id] = 0;
}

void Accessed(void*, const tierd_access*) {}  // recency means nothing here

void Inserted(void* p, std::uint32_t tier, std::uint32_t id) {
  if (tier == TIERD_TIER_RAM && id < Self(p).objects.Limit()) Self(p).objects[id] |= kInRam;
}
void Removed(void* p, std::uint32_t tier, std::uint32_t id) {
  if (tier == TIERD_TIER_RAM && id < Self(p).objects.Limit()) Self(p).objects[id] &= ~kInRam;
}

void Capacity(void* p, std::uint32_t tier, std::uint64_t bytes) {
  if (tier < TIERD_POLICY_TIERS) Self(p).capacity[tier] = bytes;
}

int Admit(void* p, std::uint32_t tier, std::uint32_t id, std::uint64_t bytes_free) {
  const Freeze& self = Self(p);
  if (id >= self.objects.Limit() || (self.objects[id] & kKnown) == 0) return 0;
  if (self.BytesOf(id) > bytes_free) return 0;
  const bool twice = tier == TIERD_TIER_SSD && (self.objects[id] & kInRam) != 0;
  return twice && self.known_bytes > self.capacity[TIERD_TIER_SSD] ? 0 : 1;
}

std::size_t Victims(void*, std::uint32_t, std::uint64_t, std::uint32_t*, std::size_t) { return 0; }

}  // namespace

const tierd_policy_ops* FreezePolicy() {
  static constexpr tierd_policy_ops kOps = {
      .abi_version = TIERD_POLICY_ABI_VERSION,
      .struct_size = sizeof(tierd_policy_ops),
      .name = "freeze",
      .summary = "fill once in the order of first use, never evict: best without knowledge of the order",
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
      .worth = nullptr,
      .admit_for = nullptr,
      .soon = nullptr,
      .hint = nullptr,
  };
  return &kOps;
}

}  // namespace tierd::policies
