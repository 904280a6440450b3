// One running policy: owns what ops.create() returned, passes events on and takes answers with distrust. Ids that the host never
// made known, objects that are not where the answer needs them, and duplicates are dropped and counted, so that the engine can use
// every id that comes back without a check of its own.
//
// Owner: the engine, one per dataset. Thread rule: one thread (the loop). The tables behind `ops` outlive it (Registry).
// It does not: measure how long a call takes (the host owns the clock), keep sizes or times of objects.
// Cost: half a byte per object id beside the policy's own state.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policies/tierd_policy.h"
#include "tierd/base/status.h"

namespace tierd::policies {

struct PolicyCounters {
  std::uint64_t events = 0;
  std::uint64_t questions = 0;
  std::uint64_t victims_named = 0;      // accepted ones
  std::uint64_t candidates_named = 0;   // accepted ones
  // Answers dropped: a policy that has any is wrong.
  std::uint64_t unknown_ids = 0;        // never made known, or forgotten
  std::uint64_t misplaced_ids = 0;      // victims that are not in the tier, candidates that are
  std::uint64_t duplicate_ids = 0;
  std::uint64_t overlong_answers = 0;   // said it wrote more than it was allowed to; the answer is cut
  std::uint64_t dropped() const { return unknown_ids + misplaced_ids + duplicate_ids + overlong_answers; }
};

class PolicyInstance {
 public:
  struct Options {
    std::uint64_t seed = 0;
    std::uint64_t capacity_bytes[TIERD_POLICY_TIERS] = {0, 0};
    std::string parameters;  // "key=value,key=value"
  };
  struct Object {
    std::uint32_t id = 0;
    std::uint32_t file_id = 0;
    std::uint32_t chunk = 0;
    std::uint64_t bytes = 0;
  };
  struct Access {
    std::uint32_t id = 0;
    std::uint32_t consumer = 0;
    std::int64_t time_ns = 0;
    std::uint8_t tier = 0;  // 0 RAM, 1 SSD, 2 source, 3 read past the cache
  };

  // kInvalid carries the policy's own sentence. `ops` passed CheckPolicyOps (or is built in) and outlives the instance.
  // To switch policies at run time: create the new one, tell it every known object and every placement (oldest first), swap.
  static Result<PolicyInstance> Create(const tierd_policy_ops& ops, const Options& options);

  PolicyInstance(PolicyInstance&&) noexcept = default;
  PolicyInstance& operator=(PolicyInstance&&) noexcept = default;

  std::string_view name() const { return ops_->name; }
  const PolicyCounters& counters() const { return counters_; }
  bool takes_plans() const { return ops_->plan != nullptr; }

  // ---- events. Those that say nothing new (inserted twice, an unknown id) are not passed on. ids are dense, below kMaxObjects.
  void ObjectKnown(const Object& object);  // also when its size changed
  void ObjectForgotten(std::uint32_t id);  // leaves both tiers first, if it was there
  void Accessed(const Access& access);
  void Inserted(std::uint32_t tier, std::uint32_t id);
  void Removed(std::uint32_t tier, std::uint32_t id);
  void SetCapacity(std::uint32_t tier, std::uint64_t bytes);
  void EpochBoundary(std::uint32_t consumer, std::uint32_t epoch);
  // `first`: how many ids of this epoch earlier calls gave. Policies of revision 1 know epochs in one call only: they are told of the
  // pieces as if each were the whole.
  void Plan(std::uint32_t consumer, std::uint32_t epoch, std::span<const std::uint32_t> ids, std::uint32_t first = 0);
  // All that was declared for the consumer no longer holds.
  void WithdrawPlan(std::uint32_t consumer);
  // How much each object is worth to the application (TIERD_HINT_PRIORITY); as many values as ids, finite and not negative: others count as 0.
  void Prioritize(std::span<const std::uint32_t> ids, std::span<const double> priorities);
  bool takes_priorities() const { return ops_->hint != nullptr; }
  // Events about these objects follow: no change of state, only cache lines.
  void Soon(std::span<const std::uint32_t> ids);

  // ---- questions.
  // May `id` enter the tier now? Unknown ids: no.
  bool Admit(std::uint32_t tier, std::uint32_t id, std::uint64_t bytes_free, std::uint32_t why = TIERD_FOR_READER);
  // Writes distinct members of the tier to `ids`, least valuable first; returns how many. 0: nobody may leave.
  std::size_t Victims(std::uint32_t tier, std::uint64_t bytes, std::span<std::uint32_t> ids);
  // Writes distinct known objects that are not in the tier, most urgent first; returns how many.
  std::size_t Next(std::uint32_t tier, std::int64_t now_ns, std::span<tierd_candidate> out);
  // Finite; 1 where the policy has no opinion, 0 for unknown ids and NaN.
  double Worth(std::uint32_t tier, std::uint32_t id);

  // What the host has told: for checks and for explain.
  bool IsKnown(std::uint32_t id) const { return states_.Has(kKnown, id); }
  bool IsIn(std::uint32_t tier, std::uint32_t id) const { return states_.Has(tier, id); }
  // The fastest tier that it is in, or TIERD_POLICY_TIERS.
  std::uint8_t WhereIs(std::uint32_t id) const {
    if (IsIn(TIERD_TIER_RAM, id)) return TIERD_TIER_RAM;
    return members_[TIERD_TIER_SSD] > 0 && IsIn(TIERD_TIER_SSD, id) ? TIERD_TIER_SSD : TIERD_POLICY_TIERS;
  }

  static constexpr std::uint32_t kMaxObjects = 1u << 30;

 private:
  // Kinds of bits beside those of the tiers, which are numbered by tier.
  static constexpr std::uint32_t kKnown = TIERD_POLICY_TIERS, kMarked = TIERD_POLICY_TIERS + 1;  // marked: in the answer that is being looked at
  // A bit per id and kind, each kind by itself: of a million objects, what is asked of a victim lies in a processor's own cache.
  class States {
   public:
    void Cover(std::uint32_t id) {
      if (id < limit_) return;
      for (auto& bits : bits_) bits.resize(id / kBits + std::size_t{1});
      limit_ = bits_[0].size() * kBits;
    }
    bool Has(std::uint32_t kind, std::uint32_t id) const { return id < limit_ && (bits_[kind][id / kBits] >> (id % kBits) & 1) != 0; }
    // Of covered ids.
    void Set(std::uint32_t kind, std::uint32_t id) { bits_[kind][id / kBits] |= std::uint64_t{1} << (id % kBits); }
    void Clear(std::uint32_t kind, std::uint32_t id) { bits_[kind][id / kBits] &= ~(std::uint64_t{1} << (id % kBits)); }
    const void* Line(std::uint32_t kind, std::uint32_t id) const { return bits_[kind].data() + id / kBits; }

   private:
    static constexpr std::uint32_t kBits = 64;
    std::vector<std::uint64_t> bits_[TIERD_POLICY_TIERS + 2];
    std::size_t limit_ = 0;  // ids
  };
  struct Destroy {
    void (*destroy)(void*);
    void operator()(void* self) const { destroy(self); }
  };

  PolicyInstance(const tierd_policy_ops& ops, void* self) : ops_(&ops), self_(self, Destroy{ops.destroy}) {}
  // Counts and refuses ids that an answer must not hold; marks the others. `in_tier`: where a good one is.
  bool Accept(std::uint32_t id, std::uint32_t tier, bool in_tier);
  // Of `named` victims, those that are some go to the front; returns how many.
  std::size_t Sift(std::uint32_t tier, std::span<std::uint32_t> ids, std::size_t named);

  const tierd_policy_ops* ops_;
  std::unique_ptr<void, Destroy> self_;
  States states_;
  std::uint32_t members_[TIERD_POLICY_TIERS] = {0, 0};
  PolicyCounters counters_;
};

// ---- what happens with every read: here, so that a call of the policy costs one call ------------------------------------------------

inline void PolicyInstance::Accessed(const Access& access) {
  if (!IsKnown(access.id)) return;
  tierd_access c{};
  c.struct_size = sizeof(c);
  c.id = access.id;
  c.time_ns = access.time_ns;
  c.consumer = access.consumer;
  c.tier = access.tier;
  ++counters_.events;
  ops_->accessed(self_.get(), &c);
}

inline void PolicyInstance::Inserted(std::uint32_t tier, std::uint32_t id) {
  if (tier >= TIERD_POLICY_TIERS || !IsKnown(id) || IsIn(tier, id)) return;
  states_.Set(tier, id);
  ++members_[tier];
  ++counters_.events;
  ops_->inserted(self_.get(), tier, id);
}

inline void PolicyInstance::Removed(std::uint32_t tier, std::uint32_t id) {
  if (tier >= TIERD_POLICY_TIERS || !IsIn(tier, id)) return;
  states_.Clear(tier, id);
  --members_[tier];
  ++counters_.events;
  ops_->removed(self_.get(), tier, id);
}

inline bool PolicyInstance::Admit(std::uint32_t tier, std::uint32_t id, std::uint64_t bytes_free, std::uint32_t why) {
  if (tier >= TIERD_POLICY_TIERS || !IsKnown(id)) return false;
  ++counters_.questions;
  if (ops_->admit_for != nullptr) {
    tierd_admission c{};
    c.struct_size = sizeof(c);
    c.tier = tier;
    c.id = id;
    c.why = why;
    c.bytes_free = bytes_free;
    return ops_->admit_for(self_.get(), &c) != 0;
  }
  return ops_->admit(self_.get(), tier, id, bytes_free) != 0;
}

inline std::size_t PolicyInstance::Victims(std::uint32_t tier, std::uint64_t bytes, std::span<std::uint32_t> ids) {
  if (tier >= TIERD_POLICY_TIERS || ids.empty()) return 0;
  ++counters_.questions;
  const std::size_t named = ops_->victims(self_.get(), tier, bytes, ids.data(), ids.size());
  const bool one = named == 1 && IsIn(tier, ids[0]);  // mostly: nothing to compare it with
  const std::size_t kept = one ? 1 : Sift(tier, ids, named);
  counters_.victims_named += kept;
  return kept;
}

}  // namespace tierd::policies
