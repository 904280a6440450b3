// belady: who is used last leaves first, by the plan (L. Belady, "A study of replacement algorithms for a virtual-storage computer",
// 1966), with bypass: what would be used later than every resident does not enter. Optimal for equal sizes as far as the plan reaches;
// objects without a known use count as never used. Without a plan it does as `freeze`, and also while what is read is not what was
// planned: evicting by a wrong plan is as bad as evicting at random.
//
// Sizes: victims are named by next use alone until their bytes suffice; to admit a large object only because it comes a little
// earlier than many small ones would be wrong, so it is compared with the earliest of those that would have to leave. For source *bytes* next use is all that counts:
// every byte costs the same, and kept in part, objects would be kept just so. With the parameter `operation_bytes` a read from the source costs so many bytes more
// than the object has: then who saves least per byte and time leaves first (cost_order.h), and what saves more than all that would have to leave for it enters.
// That is greedy, not optimal: for one reader the bound is the fractional knapsack of what saves most per byte (policies/sim/bound.h; docs/simulation.md has figures).
//
// The tiers are exclusive once the dataset does not fit on the SSD, and each is ordered by next use: what leaves RAM is offered to the
// SSD tier, where it replaces what is used later still.
#include <algorithm>
#include <new>
#include <vector>

#include "policies/builtin.h"
#include "policies/cost_order.h"
#include "policies/disuse.h"
#include "policies/parameters.h"
#include "policies/prefetch.h"
#include "policies/timeline.h"

namespace tierd::policies {
namespace {

constexpr std::size_t kScan = 4096;  // slots that next() looks at
constexpr double kMemory = 1.0 / 256;  // weight of the latest access among those that were planned or not
constexpr double kTolerated = 0.4;     // share of accesses that were not

constexpr std::size_t kMostVictims = 256;  // that an object which weighs more may replace

struct Belady {
  Timeline timeline;
  Disuse disuse;                  // as long as there is no plan to follow
  std::uint64_t capacity[TIERD_POLICY_TIERS] = {0, 0};
  std::uint64_t known_bytes = 0;
  std::uint64_t window = 0;       // parameter; 0: by the length of an epoch
  std::uint64_t operation_bytes = 0;  // parameter: what a read from the source costs beside its bytes
  CostOrder costs[TIERD_POLICY_TIERS] = {{timeline, 0}, {timeline, 1}};  // kept if there is such a cost
  std::vector<std::uint32_t> ids;     // scratch
  std::uint32_t epoch = UINT32_MAX;
  std::uint64_t epoch_ids = 0;    // of the epoch that is being declared
  std::int64_t last_ns = 0;
  double interval_ns = 0;         // between accesses, smoothed
  double unplanned = 0;           // share of the latest accesses
  std::uint64_t found = 0;        // of the timeline, as the costs know it
  Announced announced;

  auto Sizes() const {
    return [this](std::uint32_t id) -> std::uint64_t { return timeline.BytesOf(id); };
  }
  bool Follows() const { return !timeline.empty() && unplanned < kTolerated; }
  bool Weighs() const { return operation_bytes > 0 && !timeline.alike(); }
  // Next uses of many residents are other ones. O(objects), once for each time that the readers were found elsewhere.
  void NoteFound() {
    if (operation_bytes == 0 || found == timeline.found()) return;
    found = timeline.found();
    for (std::uint32_t id = 0; id < timeline.limit(); ++id) {
      if (timeline.IsKnown(id)) NoteUse(id);
    }
  }
  // The next use of a resident is another one.
  void NoteUse(std::uint32_t id) {
    if (operation_bytes == 0) return;
    for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
      if (timeline.IsResident(tier, id)) costs[tier].Add(id);
    }
  }
};

Belady& Self(void* self) { return *static_cast<Belady*>(self); }

void* Create(const tierd_policy_env* env, char* error, std::size_t error_bytes) {
  auto* self = new Belady;
  std::copy_n(env->capacity_bytes, TIERD_POLICY_TIERS, self->capacity);
  const Parameter known[] = {{"window", &self->window}, {"operation_bytes", &self->operation_bytes}};
  if (ReadParameters(env->parameters, known, error, error_bytes) && self->window < Timeline::kMaxSlots) {
    for (CostOrder& costs : self->costs) costs.SetOperationBytes(self->operation_bytes);
    return self;
  }
  delete self;
  return nullptr;
}
void Destroy(void* self) { delete &Self(self); }

void ObjectKnown(void* p, const tierd_object* object) {
  Belady& self = Self(p);
  if (self.timeline.IsKnown(object->id)) self.known_bytes -= self.timeline.BytesOf(object->id);
  self.timeline.Know(object->id, object->bytes);
  self.disuse.Cover(object->id);
  if (self.timeline.IsKnown(object->id)) self.known_bytes += self.timeline.BytesOf(object->id);
}
void ObjectForgotten(void* p, std::uint32_t id) {
  Belady& self = Self(p);
  if (!self.timeline.IsKnown(id)) return;
  self.known_bytes -= self.timeline.BytesOf(id);
  self.timeline.Forget(id);
  self.disuse.Forget(id);
}

void Accessed(void* p, const tierd_access* access) {
  Belady& self = Self(p);
  self.disuse.Read(access->id, access->time_ns);
  if (self.timeline.empty()) return;  // no plan: nothing that is read is in it, or not
  const bool planned = self.timeline.Consume(access->id);
  self.NoteFound();
  self.unplanned += ((planned ? 0.0 : 1.0) - self.unplanned) * kMemory;
  if (!planned) return;
  self.NoteUse(access->id);
  const auto passed = static_cast<double>(std::clamp<std::int64_t>(access->time_ns - self.last_ns, 0, 1'000'000'000));
  self.interval_ns += (passed - self.interval_ns) / 256;
  self.last_ns = access->time_ns;
}

void Inserted(void* p, std::uint32_t tier, std::uint32_t id) {
  if (tier >= TIERD_POLICY_TIERS || !Self(p).timeline.IsKnown(id)) return;
  Self(p).timeline.SetResident(tier, id, true);
  Self(p).disuse.SetResident(tier, id, true);
  Self(p).NoteUse(id);
}
void Removed(void* p, std::uint32_t tier, std::uint32_t id) {
  if (tier >= TIERD_POLICY_TIERS) return;
  Self(p).timeline.SetResident(tier, id, false);
  Self(p).disuse.SetResident(tier, id, false);
}
void Capacity(void* p, std::uint32_t tier, std::uint64_t bytes) {
  if (tier < TIERD_POLICY_TIERS) Self(p).capacity[tier] = bytes;
}

// One timeline: the plan of TIERD_CONSUMER_ALL, or of the only consumer.
void PlanDeclared(void* p, const tierd_plan* plan) {
  Belady& self = Self(p);
  if (self.timeline.empty()) self.unplanned = 0;  // a new one may be right
  if (plan->count == 0) return self.timeline.Withdraw();
  if (plan->epoch != self.epoch) self.epoch_ids = 0;
  self.epoch = plan->epoch;
  self.epoch_ids += plan->count;
  // An object's use in the next epoch must not pass for the one in this: less than a quarter of an epoch. Workers run some thousand ahead.
  const std::uint64_t usual = std::clamp<std::uint64_t>(self.epoch_ids / 4, 1, 1u << 14);
  self.timeline.SetWindow(static_cast<std::uint32_t>(self.window > 0 ? self.window : usual));
  self.ids.clear();
  for (std::size_t i = 0; self.operation_bytes > 0 && i < plan->count; ++i) {
    if (self.timeline.NextUse(plan->ids[i], false) == Timeline::kNever) self.ids.push_back(plan->ids[i]);
  }
  self.timeline.Append({plan->ids, plan->count});
  for (const std::uint32_t id : self.ids) {
    if (self.timeline.IsKnown(id)) self.NoteUse(id);
  }
}

// Of the residents that would leave for `bytes`, when the first one is used that is used first.
std::uint64_t EarliestVictim(const Belady& self, std::uint32_t tier, std::uint64_t bytes) {
  std::uint64_t freed = 0;
  for (Timeline::Last last(self.timeline, tier); last.id() != TIERD_NO_OBJECT; last.Next()) {
    freed += self.timeline.BytesOf(last.id());
    if (freed >= bytes) return last.slot();
  }
  return 0;
}

int AdmitFor(void* p, const tierd_admission* admission) {
  Belady& self = Self(p);
  const std::uint32_t id = admission->id;
  const std::uint32_t tier = admission->tier;
  if (tier >= TIERD_POLICY_TIERS || !self.timeline.IsKnown(id)) return 0;
  const bool twice = tier == TIERD_TIER_SSD && self.timeline.IsResident(TIERD_TIER_RAM, id) && admission->why != TIERD_DEMOTION;
  if (twice && self.known_bytes > self.capacity[TIERD_TIER_SSD]) return 0;
  const std::uint64_t bytes = self.timeline.BytesOf(id);
  if (bytes <= admission->bytes_free) return 1;
  if (bytes > self.capacity[tier]) return 0;
  const bool being_read = admission->why == TIERD_FOR_READER || admission->why == TIERD_COPY;
  if (!self.Follows()) return being_read && self.disuse.MayDisplace(tier, id, bytes - admission->bytes_free, self.Sizes()) ? 1 : 0;
  const std::uint64_t use = self.timeline.NextUse(id, being_read);
  if (!self.Weighs()) return use < EarliestVictim(self, tier, bytes - admission->bytes_free) ? 1 : 0;
  double gain = 0;
  self.ids.clear();
  return self.costs[tier].Least(bytes - admission->bytes_free, kMostVictims, &self.ids, &gain) && self.costs[tier].Gain(id, use) > gain ? 1 : 0;
}
int Admit(void* p, std::uint32_t tier, std::uint32_t id, std::uint64_t bytes_free) {
  const tierd_admission admission = {sizeof(tierd_admission), tier, id, TIERD_FOR_READER, bytes_free};
  return AdmitFor(p, &admission);
}

std::size_t Victims(void* p, std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
  Belady& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS || max == 0) return 0;
  if (!self.Follows()) return self.disuse.Victims(tier, bytes, ids, max, self.Sizes());
  if (self.Weighs()) {
    double gain = 0;
    self.ids.clear();
    self.costs[tier].Least(bytes, max, &self.ids, &gain);
    std::copy(self.ids.begin(), self.ids.end(), ids);
    return self.ids.size();
  }
  std::size_t count = 0;
  std::uint64_t freed = 0;
  for (Timeline::Last last(self.timeline, tier); last.id() != TIERD_NO_OBJECT; last.Next()) {
    freed += self.timeline.BytesOf(last.id());
    ids[count++] = last.id();
    if (freed >= bytes || count == max) break;
  }
  return count;
}

// What is used soonest and is not there, as long as it would be admitted by taking the place of something used later.
std::size_t NextWanted(void* p, std::uint32_t tier, std::int64_t now_ns, tierd_candidate* out, std::size_t max) {
  const Belady& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS || !self.Follows()) return 0;
  const std::uint64_t end = std::min(self.timeline.end(), self.timeline.now() + kScan);
  std::size_t count = 0;
  for (std::uint64_t slot = self.timeline.now(); slot < end && count < max; ++slot) {
    const std::uint32_t id = self.timeline.MissingAt(slot, tier);
    if (id == TIERD_NO_OBJECT || self.timeline.BytesOf(id) > self.capacity[tier] || self.timeline.NextUse(id, false) != slot) continue;
    out[count++] = {id, 0, now_ns + static_cast<std::int64_t>(static_cast<double>(slot - self.timeline.now()) * self.interval_ns)};
  }
  return count;
}

// 1 for what is used at once, 1/2 for what is used 65,536 uses later; nothing for what is not known to be used.
double Worth(void* p, std::uint32_t tier, std::uint32_t id) {
  Belady& self = Self(p);
  if (tier >= TIERD_POLICY_TIERS || !self.timeline.IsKnown(id)) return 0;
  if (!self.Follows()) return self.disuse.IsDisused(id) ? 0 : 1;
  const std::uint64_t use = self.timeline.NextUse(id, false);
  return use == Timeline::kNever ? 0 : 65536.0 / (65536.0 + static_cast<double>(use - self.timeline.now()));
}

void Soon(void* p, const std::uint32_t* ids, std::size_t count) {
  Belady& self = Self(p);
  for (std::size_t i = 0; i < count; ++i) self.disuse.Prefetch(ids[i]);
  if (self.timeline.empty()) return;
  for (std::size_t i = 0; i < count; ++i) self.timeline.PrefetchObject(ids[i]);
  self.announced.ForEach([&](std::uint32_t id) { self.timeline.PrefetchUse(id); });
  self.announced.Note(ids, count);
}

}  // namespace

const tierd_policy_ops* BeladyPolicy() {
  static constexpr tierd_policy_ops kOps = {
      .abi_version = TIERD_POLICY_ABI_VERSION,
      .struct_size = sizeof(tierd_policy_ops),
      .name = "belady",
      .summary = "by the plan: used last leaves first, and nothing enters that is used later than all that is there",
      .create = Create,
      .destroy = Destroy,
      .object_known = ObjectKnown,
      .object_forgotten = ObjectForgotten,
      .accessed = Accessed,
      .inserted = Inserted,
      .removed = Removed,
      .capacity = Capacity,
      .epoch_boundary = nullptr,
      .plan = PlanDeclared,
      .admit = Admit,
      .victims = Victims,
      .next = NextWanted,
      .worth = Worth,
      .admit_for = AdmitFor,
      .soon = Soon,
      .hint = nullptr,
  };
  return &kOps;
}

// belady falls back to freeze by itself: choosing it is all that `auto` has to do.
const tierd_policy_ops* AutoPolicy() {
  static const tierd_policy_ops kOps = [] {
    tierd_policy_ops ops = *BeladyPolicy();
    ops.name = "auto";
    ops.summary = "freeze, and belady as long as a plan is there and right";
    return ops;
  }();
  return &kOps;
}

}  // namespace tierd::policies
