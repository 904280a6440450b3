// What most policies have in common: sizes of objects, capacities, who is where, and the functions of the table that only forward. A
// policy derives from it, hides what it does itself, and fills its table with Table<Policy>().
//
// Not an interface and never used through a pointer to it. Thread rule: as any policy, one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "policies/paged_array.h"
#include "policies/parameters.h"
#include "policies/tierd_policy.h"

namespace tierd::policies {

class BasePolicy {
 public:
  explicit BasePolicy(const tierd_policy_env& env) { std::copy_n(env.capacity_bytes, TIERD_POLICY_TIERS, capacity_); }

  bool IsKnown(std::uint32_t id) const { return id < objects_.Limit() && objects_[id].known; }
  bool IsIn(std::uint32_t tier, std::uint32_t id) const { return objects_[id].in[tier]; }
  std::uint64_t BytesOf(std::uint32_t id) const { return objects_[id].bytes; }

  // Events. `tier` is one of ours and `id` is known where a derived function is called.
  void Known(const tierd_object& object) {
    objects_.Cover(object.id);
    Object& own = objects_[object.id];
    known_bytes_ += object.bytes - (own.known ? own.bytes : 0);
    own.bytes = object.bytes;
    own.known = true;
  }
  void Forgotten(std::uint32_t) {}
  void Accessed(const tierd_access&) {}
  void Inserted(std::uint32_t, std::uint32_t) {}
  void Removed(std::uint32_t, std::uint32_t) {}
  void EpochBoundary(std::uint32_t, std::uint32_t) {}
  void Plan(const tierd_plan&) {}
  void Hint(const tierd_hint&) {}

  // Questions. By default: whatever fits into the tier at all may enter, and nothing is brought.
  bool Admit(const tierd_admission& admission) { return BytesOf(admission.id) <= capacity_[admission.tier]; }
  std::size_t Next(std::uint32_t, std::int64_t, tierd_candidate*, std::size_t) { return 0; }
  double Worth(std::uint32_t, std::uint32_t) { return 1; }

 protected:
  struct Object {
    std::uint64_t bytes = 0;
    bool known = false;
    bool in[TIERD_POLICY_TIERS] = {false, false};
  };
  template <typename Policy>
  friend const tierd_policy_ops* Table(const char* name, const char* summary);

  PagedArray<Object> objects_;
  std::uint64_t capacity_[TIERD_POLICY_TIERS] = {0, 0};
  std::uint64_t known_bytes_ = 0;
};

// The table of a policy derived from BasePolicy. One per type: `name` and `summary` (static) count in the first call.
template <typename Policy>
const tierd_policy_ops* Table(const char* name, const char* summary) {
  static const auto self = [](void* p) -> Policy& { return *static_cast<Policy*>(p); };
  static const tierd_policy_ops kOps = {
      .abi_version = TIERD_POLICY_ABI_VERSION,
      .struct_size = sizeof(tierd_policy_ops),
      .name = name,
      .summary = summary,
      .create = [](const tierd_policy_env* env, char* error, std::size_t error_bytes) -> void* {
        return ReadParameters(env->parameters, {}, error, error_bytes) ? new Policy(*env) : nullptr;  // it takes none
      },
      .destroy = [](void* p) { delete &self(p); },
      .object_known = [](void* p, const tierd_object* object) { self(p).Known(*object); },
      .object_forgotten =
          [](void* p, std::uint32_t id) {
            if (!self(p).IsKnown(id)) return;
            for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
              if (self(p).IsIn(tier, id)) self(p).objects_[id].in[tier] = false, self(p).Removed(tier, id);
            }
            self(p).Forgotten(id);
            self(p).known_bytes_ -= self(p).objects_[id].bytes;
            self(p).objects_[id] = {};
          },
      .accessed =
          [](void* p, const tierd_access* access) {
            if (self(p).IsKnown(access->id)) self(p).Accessed(*access);
          },
      .inserted =
          [](void* p, std::uint32_t tier, std::uint32_t id) {
            if (tier >= TIERD_POLICY_TIERS || !self(p).IsKnown(id) || self(p).IsIn(tier, id)) return;
            self(p).objects_[id].in[tier] = true;
            self(p).Inserted(tier, id);
          },
      .removed =
          [](void* p, std::uint32_t tier, std::uint32_t id) {
            if (tier >= TIERD_POLICY_TIERS || !self(p).IsKnown(id) || !self(p).IsIn(tier, id)) return;
            self(p).objects_[id].in[tier] = false;
            self(p).Removed(tier, id);
          },
      .capacity =
          [](void* p, std::uint32_t tier, std::uint64_t bytes) {
            if (tier < TIERD_POLICY_TIERS) self(p).capacity_[tier] = bytes;
          },
      .epoch_boundary = [](void* p, std::uint32_t consumer, std::uint32_t epoch) { self(p).EpochBoundary(consumer, epoch); },
      .plan = [](void* p, const tierd_plan* plan) { self(p).Plan(*plan); },
      .admit = [](void* p, std::uint32_t tier, std::uint32_t id, std::uint64_t bytes_free) -> int {
        if (tier >= TIERD_POLICY_TIERS || !self(p).IsKnown(id)) return 0;
        return self(p).Admit({sizeof(tierd_admission), tier, id, TIERD_FOR_READER, bytes_free}) ? 1 : 0;
      },
      .victims = [](void* p, std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) -> std::size_t {
        return tier < TIERD_POLICY_TIERS ? self(p).Victims(tier, bytes, ids, max) : 0;
      },
      .next = [](void* p, std::uint32_t tier, std::int64_t now_ns, tierd_candidate* out, std::size_t max) -> std::size_t {
        return tier < TIERD_POLICY_TIERS ? self(p).Next(tier, now_ns, out, max) : 0;
      },
      .worth = [](void* p, std::uint32_t tier, std::uint32_t id) -> double {
        return tier < TIERD_POLICY_TIERS && self(p).IsKnown(id) && self(p).IsIn(tier, id) ? self(p).Worth(tier, id) : 0;
      },
      .admit_for = [](void* p, const tierd_admission* admission) -> int {
        return admission->tier < TIERD_POLICY_TIERS && self(p).IsKnown(admission->id) && self(p).Admit(*admission) ? 1 : 0;
      },
      .soon = nullptr,
      .hint = [](void* p, const tierd_hint* hint) { self(p).Hint(*hint); },
  };
  return &kOps;
}

}  // namespace tierd::policies
