// The policy of a source, and, while it is being replaced, its successor: that one is told of all that is known in slices (HAZARDS 5) and hears of every event
// meanwhile; the old one answers until it knows everything.
//
// Owner: SourceUnit. Loop thread only.
#pragma once

#include <cstdint>
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
    policy_ = std::move(next_);
    next_.reset();
  }

  // ---- events. An instance drops what it has not been told about yet.
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

  // ---- questions.
  bool Admit(std::uint32_t tier, std::uint32_t id, std::uint64_t bytes_free) { return policy_->Admit(tier, id, bytes_free); }
  std::size_t Victims(std::uint32_t tier, std::uint64_t bytes, std::span<std::uint32_t> ids) { return policy_->Victims(tier, bytes, ids); }
  double Worth(std::uint32_t tier, std::uint32_t id) { return policy_->Worth(tier, id); }

 private:
  std::optional<policies::PolicyInstance> policy_;
  std::optional<policies::PolicyInstance> next_;
  std::size_t told_ = 0;
};

}  // namespace tierd::engine
