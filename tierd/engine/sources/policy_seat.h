// The policy of a source, and, while it is being replaced, its successor: that one is told of all that is known in slices (HAZARDS 5) and hears of every event
// meanwhile; the old one answers until it knows everything.
//
// Owner: SourceUnit. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "policies/policy_instance.h"

namespace tierd::engine {

class PolicySeat {
 public:
  // At once; before the first event.
  void Set(policies::PolicyInstance policy) { policy_ = std::move(policy); }
  // The successor, which has been told nothing yet. One that was under way before is dropped.
  void Begin(policies::PolicyInstance next) {
    next_ = std::move(next);
    told_ = 0;
  }
  bool changing() const { return next_.has_value(); }
  policies::PolicyInstance& next() { return *next_; }
  // Objects below it have been told.
  std::size_t& told() { return told_; }
  void TakeOver() {
    dropped_before_ += policy_->counters().dropped();
    policy_ = std::move(next_);
    next_.reset();
    ++incarnation_;
    if (on_plan) on_plan(0, {}, 0);
  }
  // How many have taken over: each begins without a plan.
  std::uint32_t incarnation() const { return incarnation_; }

  // ---- events. An instance drops what it has not been told about yet.
  void Soon(std::span<const std::uint32_t> ids) {
    policy_->Soon(ids);
    if (next_) next_->Soon(ids);
  }
  void ObjectKnown(const policies::PolicyInstance::Object& object) {
    policy_->ObjectKnown(object);
    if (next_) next_->ObjectKnown(object);
  }
  void ObjectForgotten(std::uint32_t id) {
    policy_->ObjectForgotten(id);
    if (next_) next_->ObjectForgotten(id);
  }
  void Accessed(const policies::PolicyInstance::Access& access) {
    policy_->Accessed(access);
    if (next_) next_->Accessed(access);
  }
  void Inserted(std::uint32_t tier, std::uint32_t id) {
    policy_->Inserted(tier, id);
    if (next_) next_->Inserted(tier, id);
  }
  void Removed(std::uint32_t tier, std::uint32_t id) {
    policy_->Removed(tier, id);
    if (next_) next_->Removed(tier, id);
  }
  void SetCapacity(std::uint32_t tier, std::uint64_t bytes) {
    policy_->SetCapacity(tier, bytes);
    if (next_) next_->SetCapacity(tier, bytes);
  }
  void EpochBoundary(std::uint32_t consumer, std::uint32_t epoch) {
    policy_->EpochBoundary(consumer, epoch);
    if (next_) next_->EpochBoundary(consumer, epoch);
  }
  // To the one that answers: its successor is told when it has taken over.
  void Plan(std::uint32_t consumer, std::uint32_t epoch, std::span<const std::uint32_t> ids, std::uint32_t first) {
    policy_->Plan(consumer, epoch, ids, first);
    if (on_plan && !ids.empty()) on_plan(epoch, ids, first);
  }
  // Hears what is declared to the policy: epoch, objects, how many of that epoch came before. No objects: what was declared no longer holds.
  std::function<void(std::uint32_t, std::span<const std::uint32_t>, std::uint32_t)> on_plan;
  // What the application says its objects are worth to it; not told again to one that takes over later.
  void Prioritize(std::span<const std::uint32_t> ids, std::span<const double> priorities) {
    policy_->Prioritize(ids, priorities);
    if (next_) next_->Prioritize(ids, priorities);
  }
  bool takes_priorities() const { return policy_->takes_priorities(); }

  // Wrong answers, which were not followed: of the policy that answers, and of all so far.
  std::uint64_t dropped() const { return policy_->counters().dropped(); }
  std::uint64_t dropped_by_all() const { return dropped_before_ + dropped(); }

  // ---- questions.
  bool takes_plans() const { return policy_->takes_plans(); }
  std::size_t Next(std::uint32_t tier, std::int64_t now_ns, std::span<tierd_candidate> out) { return policy_->Next(tier, now_ns, out); }
  bool Admit(std::uint32_t tier, std::uint32_t id, std::uint64_t bytes_free, std::uint32_t why) { return policy_->Admit(tier, id, bytes_free, why); }
  std::size_t Victims(std::uint32_t tier, std::uint64_t bytes, std::span<std::uint32_t> ids) { return policy_->Victims(tier, bytes, ids); }
  double Worth(std::uint32_t tier, std::uint32_t id) { return policy_->Worth(tier, id); }

 private:
  std::optional<policies::PolicyInstance> policy_;
  std::optional<policies::PolicyInstance> next_;
  std::size_t told_ = 0;
  std::uint64_t dropped_before_ = 0;
  std::uint32_t incarnation_ = 0;
};

}  // namespace tierd::engine
