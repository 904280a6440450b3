// random: whoever is drawn leaves. A yardstick between lru and freeze under permutations; drawn by the seed that the host gave, so the
// same events give the same answers.
#include <utility>
#include <vector>

#include "policies/base_policy.h"
#include "policies/builtin.h"

namespace tierd::policies {
namespace {

class Random final : public BasePolicy {
 public:
  explicit Random(const tierd_policy_env& env) : BasePolicy(env), state_(env.seed) {}

  void Known(const tierd_object& object) {
    BasePolicy::Known(object);
    for (PagedArray<std::uint32_t>& places : places_) places.Cover(object.id);
  }
  void Inserted(std::uint32_t tier, std::uint32_t id) {
    places_[tier][id] = static_cast<std::uint32_t>(members_[tier].size());
    members_[tier].push_back(id);
  }
  void Removed(std::uint32_t tier, std::uint32_t id) {
    Swap(tier, places_[tier][id], static_cast<std::uint32_t>(members_[tier].size() - 1));
    members_[tier].pop_back();
  }
  std::size_t Victims(std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
    std::size_t count = 0;
    std::uint64_t freed = 0;
    // Those drawn are put to the end, so that none is drawn twice.
    for (auto left = static_cast<std::uint32_t>(members_[tier].size()); left > 0 && count < max && freed < bytes; --left) {
      Swap(tier, static_cast<std::uint32_t>(Draw() % left), left - 1);
      ids[count++] = members_[tier][left - 1];
      freed += BytesOf(members_[tier][left - 1]);
    }
    return count;
  }

 private:
  void Swap(std::uint32_t tier, std::uint32_t a, std::uint32_t b) {
    std::swap(members_[tier][a], members_[tier][b]);
    places_[tier][members_[tier][a]] = a;
    places_[tier][members_[tier][b]] = b;
  }
  // SplitMix64 (G. Steele, D. Lea, C. Flood, 2014).
  std::uint64_t Draw() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

  std::vector<std::uint32_t> members_[TIERD_POLICY_TIERS];
  PagedArray<std::uint32_t> places_[TIERD_POLICY_TIERS];
  std::uint64_t state_;
};

}  // namespace

const tierd_policy_ops* RandomPolicy() { return Table<Random>("random", "whoever is drawn leaves; a yardstick"); }

}  // namespace tierd::policies
