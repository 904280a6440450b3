// s3fifo: three queues (J. Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023). What enters goes through a small
// queue of a tenth of the tier; what is used again there moves to the main queue, the rest leaves soon and is remembered for a while: if it
// comes back, it enters the main queue at once. Good where a part of the data is read much more often than the rest (importance
// sampling, several jobs); no gain under permutations. State: 20 bytes per object and tier.
#include "policies/base_policy.h"
#include "policies/builtin.h"
#include "policies/id_list.h"

namespace tierd::policies {
namespace {

constexpr std::uint64_t kSmallShare = 10;  // of the tier, one part in so many
constexpr std::uint8_t kMostUses = 3;
constexpr std::size_t kMostLooks = 4096;  // at what is in use, in one call of Victims

class S3Fifo final : public BasePolicy {
 public:
  using BasePolicy::BasePolicy;

  void Known(const tierd_object& object) {
    for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
      const bool small = IsKnown(object.id) && IsIn(tier, object.id) && !tiers_[tier].entries[object.id].main;
      if (small) tiers_[tier].small_bytes += object.bytes - BytesOf(object.id);
    }
    BasePolicy::Known(object);
    for (Tier& tier : tiers_) tier.links.Cover(object.id), tier.entries.Cover(object.id);
  }
  void Forgotten(std::uint32_t id) {
    for (Tier& tier : tiers_) tier.entries[id] = {};
  }
  void Accessed(const tierd_access& access) {
    for (std::uint32_t tier = 0; tier < TIERD_POLICY_TIERS; ++tier) {
      Entry& entry = tiers_[tier].entries[access.id];
      if (!IsIn(tier, access.id)) continue;
      // The read that brought it is no second use.
      if (entry.fresh) {
        entry.fresh = false;
      } else if (entry.uses < kMostUses) {
        ++entry.uses;
      }
    }
  }
  void Inserted(std::uint32_t t, std::uint32_t id) {
    Tier& tier = tiers_[t];
    Entry& entry = tier.entries[id];
    const bool remembered = entry.left != 0 && tier.departures - entry.left < tier.in_main;
    entry = {.left = 0, .uses = 0, .main = remembered, .fresh = true};
    Enter(tier, id);
  }
  void Removed(std::uint32_t t, std::uint32_t id) {
    Tier& tier = tiers_[t];
    Leave(tier, id);
    if (!tier.entries[id].main) tier.entries[id].left = ++tier.departures;
  }
  std::size_t Victims(std::uint32_t t, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
    Tier& tier = tiers_[t];
    std::size_t count = 0;
    std::uint64_t freed = 0;
    std::uint64_t small_bytes = tier.small_bytes;  // without those named
    std::uint32_t small = tier.small.oldest();
    std::uint32_t main = tier.main.oldest();
    std::size_t looks = 0;
    while (count < max && freed < bytes && (small != TIERD_NO_OBJECT || main != TIERD_NO_OBJECT)) {
      const bool from_small = small != TIERD_NO_OBJECT && (small_bytes * kSmallShare >= capacity_[t] || main == TIERD_NO_OBJECT);
      std::uint32_t& at = from_small ? small : main;
      const std::uint32_t id = at;
      at = tier.links[id].newer;
      Entry& entry = tier.entries[id];
      if (from_small) small_bytes -= BytesOf(id);
      // Where all are in use, as after epochs of one set when another begins, all would be gone through, up to four times: then whoever is oldest.
      if (entry.uses == 0 || (from_small && entry.uses == 1) || ++looks > kMostLooks) {
        ids[count++] = id;
        freed += BytesOf(id);
        continue;
      }
      Leave(tier, id);
      entry.uses = from_small ? 0 : static_cast<std::uint8_t>(entry.uses - 1);
      entry.main = true;
      Enter(tier, id);
      if (main == TIERD_NO_OBJECT) main = id;
    }
    return count;
  }
  double Worth(std::uint32_t tier, std::uint32_t id) { return tiers_[tier].entries[id].main ? 1 + tiers_[tier].entries[id].uses : 0; }

 private:
  struct Entry {
    std::uint32_t left = 0;  // number of its departure from the small queue; 0: none
    std::uint8_t uses = 0;
    bool main = false;
    bool fresh = false;
  };
  struct Tier {
    PagedArray<Links> links;
    PagedArray<Entry> entries;
    IdList small;
    IdList main;
    std::uint64_t small_bytes = 0;
    std::uint32_t in_main = 0;
    std::uint32_t departures = 0;
  };

  void Enter(Tier& tier, std::uint32_t id) {
    if (tier.entries[id].main) {
      tier.main.PushNewest(tier.links, id);
      ++tier.in_main;
    } else {
      tier.small.PushNewest(tier.links, id);
      tier.small_bytes += BytesOf(id);
    }
  }
  void Leave(Tier& tier, std::uint32_t id) {
    if (tier.entries[id].main) {
      tier.main.Unlink(tier.links, id);
      --tier.in_main;
    } else {
      tier.small.Unlink(tier.links, id);
      tier.small_bytes -= BytesOf(id);
    }
  }

  Tier tiers_[TIERD_POLICY_TIERS];
};

}  // namespace

const tierd_policy_ops* S3FifoPolicy() { return Table<S3Fifo>("s3fifo", "what is used once leaves soon: for data of which a part is read much more often"); }

}  // namespace tierd::policies
