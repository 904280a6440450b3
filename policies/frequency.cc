// frequency: keeps what the declared plan uses most often over all of its epochs, and never changes its mind: the static placement of
// NoPFS (N. Dryden et al., "Clairvoyant Prefetching for Distributed Machine Learning I/O", SC 2021). A yardstick for `belady`, which
// knows the same and may replace. Only the plan counts; declare all of it first.
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "policies/base_policy.h"
#include "policies/builtin.h"

namespace tierd::policies {
namespace {

class Frequency final : public BasePolicy {
 public:
  using BasePolicy::BasePolicy;

  void Known(const tierd_object& object) {
    BasePolicy::Known(object);
    uses_.Cover(object.id);
  }
  void Forgotten(std::uint32_t id) { uses_[id] = 0; }
  void Plan(const tierd_plan& plan) {
    for (std::size_t i = 0; i < plan.count; ++i) {
      if (!IsKnown(plan.ids[i])) continue;
      SetUses(plan.ids[i], uses_[plan.ids[i]] + 1);
    }
    if (plan.count > 0) return;
    for (std::uint32_t id = 0; id < objects_.Limit(); ++id) SetUses(id, 0);
  }
  void Inserted(std::uint32_t tier, std::uint32_t id) { ranks_[tier].insert({uses_[id], id}); }
  void Removed(std::uint32_t tier, std::uint32_t id) { ranks_[tier].erase({uses_[id], id}); }
  bool Admit(const tierd_admission& admission) {
    const std::uint64_t bytes = BytesOf(admission.id);
    if (bytes <= admission.bytes_free || bytes > capacity_[admission.tier]) return bytes <= admission.bytes_free;
    std::uint64_t freed = admission.bytes_free;
    for (const auto& [uses, id] : ranks_[admission.tier]) {
      if (uses >= uses_[admission.id]) return false;
      freed += BytesOf(id);
      if (freed >= bytes) return true;
    }
    return false;
  }
  std::size_t Victims(std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
    std::size_t count = 0;
    std::uint64_t freed = 0;
    for (auto it = ranks_[tier].begin(); it != ranks_[tier].end() && count < max && freed < bytes; ++it) {
      ids[count++] = it->second;
      freed += BytesOf(it->second);
    }
    return count;
  }
  // O(objects): asked once, before a run.
  std::size_t Next(std::uint32_t tier, std::int64_t now_ns, tierd_candidate* out, std::size_t max) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> wanted;
    for (std::uint32_t id = 0; id < objects_.Limit(); ++id) {
      if (IsKnown(id) && !IsIn(tier, id) && uses_[id] > 0) wanted.emplace_back(uses_[id], id);
    }
    const std::size_t count = std::min(max, wanted.size());
    std::partial_sort(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(count), wanted.end(), std::greater<>());
    for (std::size_t i = 0; i < count; ++i) out[i] = {wanted[i].second, 0, now_ns};
    return count;
  }
  double Worth(std::uint32_t, std::uint32_t id) { return static_cast<double>(uses_[id]); }

 private:
  void SetUses(std::uint32_t id, std::uint64_t uses) {
    for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
      if (IsIn(tier, id)) ranks_[tier].erase({uses_[id], id}), ranks_[tier].insert({uses, id});
    }
    uses_[id] = uses;
  }

  PagedArray<std::uint64_t> uses_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> ranks_[TIERD_POLICY_TIERS];
};

}  // namespace

const tierd_policy_ops* FrequencyPolicy() { return Table<Frequency>("frequency", "keeps what the plan uses most often; a yardstick"); }

}  // namespace tierd::policies
