// importance: keeps what the application says is worth most (tierd_hint), for samplers that draw some samples more often than others (R. Khan et al., "SHADE: Enable
// Fundamental Cacheability for Distributed Deep Learning Training", FAST 2023). The least leaves first, per byte; what is worth more than all that would have to
// leave for it enters. Without a word from the application all are worth the same, nothing, and nobody leaves.
//
// State: 24 bytes per object, some 64 per member of a tier. O(log members) per event.
#include <set>
#include <utility>

#include "policies/base_policy.h"
#include "policies/builtin.h"

namespace tierd::policies {
namespace {

class Importance final : public BasePolicy {
 public:
  using BasePolicy::BasePolicy;

  void Known(const tierd_object& object) {
    priorities_.Cover(object.id);
    Leave(object.id);  // its bytes may be others
    BasePolicy::Known(object);
    Return(object.id);
  }
  void Forgotten(std::uint32_t id) { priorities_[id] = 0; }
  void Hint(const tierd_hint& hint) {
    if (hint.kind != TIERD_HINT_PRIORITY) return;
    for (std::size_t i = 0; i < hint.count; ++i) {
      if (!IsKnown(hint.ids[i])) continue;
      Leave(hint.ids[i]);
      priorities_[hint.ids[i]] = hint.values[i];
      Return(hint.ids[i]);
    }
  }
  void Inserted(std::uint32_t tier, std::uint32_t id) { ranks_[tier].insert({Density(id), id}); }
  void Removed(std::uint32_t tier, std::uint32_t id) { ranks_[tier].erase({Density(id), id}); }

  bool Admit(const tierd_admission& admission) {
    const std::uint32_t tier = admission.tier;
    const std::uint64_t bytes = BytesOf(admission.id);
    const bool twice = tier == TIERD_TIER_SSD && IsIn(TIERD_TIER_RAM, admission.id) && admission.why != TIERD_DEMOTION;
    if (twice && known_bytes_ > capacity_[TIERD_TIER_SSD]) return false;
    if (bytes <= admission.bytes_free) return true;
    if (bytes > capacity_[tier]) return false;
    std::uint64_t freed = admission.bytes_free;
    double lost = 0;
    for (const auto& [density, id] : ranks_[tier]) {
      lost += priorities_[id];
      if (lost >= priorities_[admission.id]) return false;
      freed += BytesOf(id);
      if (freed >= bytes) return true;
    }
    return false;
  }
  std::size_t Victims(std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
    std::size_t count = 0;
    std::uint64_t freed = 0;
    // What is worth nothing leaves for what is worth something; where nothing was ever said, nobody leaves.
    if (ranks_[tier].empty() || !told_) return 0;
    for (auto it = ranks_[tier].begin(); it != ranks_[tier].end() && count < max && freed < bytes; ++it) {
      ids[count++] = it->second;
      freed += BytesOf(it->second);
    }
    return count;
  }
  // Above the least of the tier, which alone is not worth moving.
  double Worth(std::uint32_t tier, std::uint32_t id) { return told_ ? Density(id) - ranks_[tier].begin()->first : 1; }

 private:
  double Density(std::uint32_t id) const { return priorities_[id] / static_cast<double>(std::max<std::uint64_t>(1, BytesOf(id))); }
  void Leave(std::uint32_t id) {
    for (std::uint32_t tier = 0; IsKnown(id) && tier < TIERD_POLICY_TIERS; ++tier) {
      if (IsIn(tier, id)) ranks_[tier].erase({Density(id), id});
    }
  }
  void Return(std::uint32_t id) {
    told_ = told_ || priorities_[id] > 0;
    for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
      if (IsIn(tier, id)) ranks_[tier].insert({Density(id), id});
    }
  }

  PagedArray<double> priorities_;
  std::set<std::pair<double, std::uint32_t>> ranks_[TIERD_POLICY_TIERS];  // by worth per byte
  bool told_ = false;
};

}  // namespace

const tierd_policy_ops* ImportancePolicy() { return Table<Importance>("importance", "by the application's word: worth least leaves first; as long as it says nothing nobody leaves"); }

}  // namespace tierd::policies
