// A policy that remembers what it was told and asked, for tests of the host's side of the ABI. It admits by a switch per tier, names the residents in the
// order in which they came, and wants what it is told to want.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "policies/policy_instance.h"
#include "tierd/base/check.h"

namespace tierd::engine {

class SpyPolicy {
 public:
  struct Admission {
    std::uint32_t tier, id, why;
    std::uint64_t bytes_free;
  };
  struct PlanCall {
    std::uint32_t consumer, epoch, first;
    std::vector<std::uint32_t> ids;
  };

  // The spy outlives the instance.
  policies::PolicyInstance Instance() {
    current = this;
    auto instance = policies::PolicyInstance::Create(Ops(), {});
    TIERD_CHECK(instance.ok());
    return std::move(instance).value();
  }

  std::vector<Admission> admissions;
  std::vector<PlanCall> plans;
  std::vector<std::uint32_t> accesses;
  std::map<std::uint32_t, double> priorities;
  std::deque<std::uint32_t> residents[TIERD_POLICY_TIERS];
  std::deque<std::uint32_t> wanted;
  std::uint64_t capacity_bytes[TIERD_POLICY_TIERS] = {0, 0};            // as told since it was made
  std::vector<std::pair<std::uint32_t, std::uint32_t>> epochs;          // consumer, number
  bool admits[TIERD_POLICY_TIERS] = {true, true};

  std::vector<std::uint32_t> WhyOf(std::uint32_t tier, std::uint32_t id) const {
    std::vector<std::uint32_t> all;
    for (const Admission& one : admissions) {
      if (one.tier == tier && one.id == id) all.push_back(one.why);
    }
    return all;
  }

 private:
  static inline SpyPolicy* current = nullptr;  // of the next create()
  static SpyPolicy& Self(void* self) { return *static_cast<SpyPolicy*>(self); }

  static const tierd_policy_ops& Ops() {
    static const tierd_policy_ops ops = {
        .abi_version = TIERD_POLICY_ABI_VERSION,
        .struct_size = sizeof(tierd_policy_ops),
        .name = "spy",
        .summary = "remembers",
        .create = [](const tierd_policy_env*, char*, std::size_t) -> void* { return current; },
        .destroy = [](void*) {},
        .object_known = [](void*, const tierd_object*) {},
        .object_forgotten = [](void*, std::uint32_t) {},
        .accessed = [](void* self, const tierd_access* access) { Self(self).accesses.push_back(access->id); },
        .inserted = [](void* self, std::uint32_t tier, std::uint32_t id) { Self(self).residents[tier].push_back(id); },
        .removed = [](void* self, std::uint32_t tier, std::uint32_t id) { std::erase(Self(self).residents[tier], id); },
        .capacity = [](void* self, std::uint32_t tier, std::uint64_t bytes) { Self(self).capacity_bytes[tier] = bytes; },
        .epoch_boundary = [](void* self, std::uint32_t consumer, std::uint32_t epoch) { Self(self).epochs.emplace_back(consumer, epoch); },
        .plan = [](void* self, const tierd_plan* plan) { Self(self).plans.push_back({plan->consumer, plan->epoch, plan->first, {plan->ids, plan->ids + plan->count}}); },
        .admit = [](void*, std::uint32_t, std::uint32_t, std::uint64_t) { return 0; },
        .victims = [](void* self, std::uint32_t tier, std::uint64_t, std::uint32_t* ids, std::size_t max) {
          const std::size_t count = std::min(max, Self(self).residents[tier].size());
          std::copy_n(Self(self).residents[tier].begin(), count, ids);
          return count;
        },
        .next = [](void* self, std::uint32_t, std::int64_t, tierd_candidate* out, std::size_t max) {
          std::size_t count = 0;
          for (const std::uint32_t id : Self(self).wanted) {
            if (count < max) out[count++] = {id, 0, TIERD_TIME_NONE};
          }
          return count;
        },
        .worth = nullptr,
        .admit_for = [](void* self, const tierd_admission* admission) {
          Self(self).admissions.push_back({admission->tier, admission->id, admission->why, admission->bytes_free});
          return Self(self).admits[admission->tier] ? 1 : 0;
        },
        .soon = nullptr,
        .hint = [](void* self, const tierd_hint* hint) {
          for (std::size_t i = 0; i < hint->count; ++i) Self(self).priorities[hint->ids[i]] = hint->values[i];
        },
    };
    return ops;
  }
};

}  // namespace tierd::engine
