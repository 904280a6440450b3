// lfu: the least often used leaves first, among equals the least recently used. Uses are counted whether an object is resident or not. A
// yardstick: when every epoch reads each object once, it does what lru does. O(log residents) per access.
#include <set>
#include <tuple>

#include "policies/base_policy.h"
#include "policies/builtin.h"

namespace tierd::policies {
namespace {

class Lfu final : public BasePolicy {
 public:
  using BasePolicy::BasePolicy;

  void Known(const tierd_object& object) {
    BasePolicy::Known(object);
    uses_.Cover(object.id);
  }
  void Forgotten(std::uint32_t id) { uses_[id] = {}; }
  void Accessed(const tierd_access& access) {
    const Rank before = RankOf(access.id);
    ++uses_[access.id].count;
    uses_[access.id].latest = ++clock_;
    for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
      if (!IsIn(tier, access.id)) continue;
      ranks_[tier].erase(before);
      ranks_[tier].insert(RankOf(access.id));
    }
  }
  void Inserted(std::uint32_t tier, std::uint32_t id) { ranks_[tier].insert(RankOf(id)); }
  void Removed(std::uint32_t tier, std::uint32_t id) { ranks_[tier].erase(RankOf(id)); }
  std::size_t Victims(std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
    std::size_t count = 0;
    std::uint64_t freed = 0;
    for (auto it = ranks_[tier].begin(); it != ranks_[tier].end() && count < max && freed < bytes; ++it) {
      ids[count++] = std::get<2>(*it);
      freed += BytesOf(std::get<2>(*it));
    }
    return count;
  }

 private:
  using Rank = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>;  // uses, the latest, id
  struct Uses {
    std::uint64_t count = 0;
    std::uint64_t latest = 0;
  };
  Rank RankOf(std::uint32_t id) const { return {uses_[id].count, uses_[id].latest, id}; }

  PagedArray<Uses> uses_;
  std::set<Rank> ranks_[TIERD_POLICY_TIERS];
  std::uint64_t clock_ = 0;
};

}  // namespace

const tierd_policy_ops* LfuPolicy() { return Table<Lfu>("lfu", "the least often used leaves first; a yardstick"); }

}  // namespace tierd::policies
