// freeze: fill once, and evict nobody whom a running job still reads. Under a fresh permutation per epoch no policy without knowledge of the order beats it (Theorem 1 of
// the training-order notes): every epoch hits the resident share C/N, while anything that evicts throws away what this very epoch
// still needs. Objects enter in the order of first use as long as they fit; what is removed by invalidation makes room again, and so do residents that nobody
// has read for longer than all that is read takes to come back (disuse.h): the data set of a job that has ended, below the same source. They leave for what is read again. Sources that
// nobody reads at all are the host's to see: a policy hears of no time without events.
//
// The two tiers are exclusive once the dataset does not fit on the SSD: a copy on both is a place that another object does not get.
// State: 8 bytes per object.
#include <algorithm>
#include <new>

#include "policies/builtin.h"
#include "policies/disuse.h"
#include "policies/paged_array.h"
#include "policies/parameters.h"

namespace tierd::policies {
namespace {

// bits 0-28: size; 29: it is in units of 64 bytes, rounded up (of half a gigabyte and more); 30: in RAM; 31: known.
constexpr std::uint32_t kSizeMask = (1u << 29) - 1;
constexpr std::uint32_t kInUnits = 1u << 29;
constexpr std::uint32_t kInRam = 1u << 30;
constexpr std::uint32_t kKnown = 1u << 31;
constexpr std::uint64_t kUnit = 64;

struct Freeze {
  PagedArray<std::uint32_t> objects;
  Disuse disuse;
  std::uint64_t capacity[TIERD_POLICY_TIERS] = {0, 0};
  std::uint64_t known_bytes = 0;

  std::uint64_t BytesOf(std::uint32_t id) const { return (objects[id] & kSizeMask) * ((objects[id] & kInUnits) != 0 ? kUnit : 1); }
  // What surely comes free with an object.
  auto LeastBytes() const {
    return [this](std::uint32_t id) -> std::uint64_t { return BytesOf(id) - ((objects[id] & kInUnits) != 0 ? kUnit - 1 : 0); };
  }
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
  self.disuse.Cover(object->id);
  std::uint32_t& word = self.objects[object->id];
  self.known_bytes -= self.BytesOf(object->id);
  const bool large = object->bytes > kSizeMask;
  const std::uint64_t size = std::min<std::uint64_t>(large ? (object->bytes + kUnit - 1) / kUnit : object->bytes, kSizeMask);
  word = kKnown | (word & kInRam) | (large ? kInUnits : 0) | static_cast<std::uint32_t>(size);
  self.known_bytes += self.BytesOf(object->id);
}

void ObjectForgotten(void* p, std::uint32_t id) {
  Freeze& self = Self(p);
  if (id >= self.objects.Limit()) return;
  self.known_bytes -= self.BytesOf(id);
  self.objects[id] = 0;
  self.disuse.Forget(id);
}

void Accessed(void* p, const tierd_access* access) { Self(p).disuse.Read(access->id, access->time_ns); }

void SetResident(Freeze& self, std::uint32_t tier, std::uint32_t id, bool resident) {
  if (tier >= TIERD_POLICY_TIERS || id >= self.objects.Limit()) return;
  self.disuse.SetResident(tier, id, resident);
  if (tier == TIERD_TIER_RAM) self.objects[id] = (self.objects[id] & ~kInRam) | (resident ? kInRam : 0);
}
void Inserted(void* p, std::uint32_t tier, std::uint32_t id) { SetResident(Self(p), tier, id, true); }
void Removed(void* p, std::uint32_t tier, std::uint32_t id) { SetResident(Self(p), tier, id, false); }

void Capacity(void* p, std::uint32_t tier, std::uint64_t bytes) {
  if (tier < TIERD_POLICY_TIERS) Self(p).capacity[tier] = bytes;
}

int AdmitFor(void* p, const tierd_admission* admission) {
  Freeze& self = Self(p);
  const std::uint32_t tier = admission->tier, id = admission->id;
  if (tier >= TIERD_POLICY_TIERS || id >= self.objects.Limit() || (self.objects[id] & kKnown) == 0) return 0;
  const bool twice = tier == TIERD_TIER_SSD && (self.objects[id] & kInRam) != 0;
  if (twice && self.known_bytes > self.capacity[TIERD_TIER_SSD]) return 0;
  const std::uint64_t bytes = self.BytesOf(id);
  if (bytes <= admission->bytes_free) return 1;
  const bool being_read = admission->why == TIERD_FOR_READER || admission->why == TIERD_COPY;
  if (!being_read || bytes > self.capacity[tier]) return 0;
  return self.disuse.MayDisplace(tier, id, bytes - admission->bytes_free, self.LeastBytes()) ? 1 : 0;
}
int Admit(void* p, std::uint32_t tier, std::uint32_t id, std::uint64_t bytes_free) {
  const tierd_admission admission = {sizeof(tierd_admission), tier, id, TIERD_FOR_READER, bytes_free};
  return AdmitFor(p, &admission);
}

std::size_t Victims(void* p, std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
  Freeze& self = Self(p);
  return tier < TIERD_POLICY_TIERS ? self.disuse.Victims(tier, bytes, ids, max, self.LeastBytes()) : 0;
}

// Space of the SSD tier is reclaimed where what nobody reads lies.
double Worth(void* p, std::uint32_t, std::uint32_t id) { return Self(p).disuse.IsDisused(id) ? 0 : 1; }

void Soon(void* p, const std::uint32_t* ids, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) Self(p).disuse.Prefetch(ids[i]);
}

}  // namespace

const tierd_policy_ops* FreezePolicy() {
  static constexpr tierd_policy_ops kOps = {
      .abi_version = TIERD_POLICY_ABI_VERSION,
      .struct_size = sizeof(tierd_policy_ops),
      .name = "freeze",
      .summary = "fill once in the order of first use, evict only what nobody reads any more: best without knowledge of the order",
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
      .admit_for = AdmitFor,
      .soon = Soon,
      .hint = nullptr,
  };
  return &kOps;
}

}  // namespace tierd::policies
