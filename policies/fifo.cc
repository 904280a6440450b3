// fifo: who came first leaves first. A yardstick.
#include "policies/base_policy.h"
#include "policies/builtin.h"
#include "policies/id_list.h"

namespace tierd::policies {
namespace {

class Fifo final : public BasePolicy {
 public:
  using BasePolicy::BasePolicy;

  void Known(const tierd_object& object) {
    BasePolicy::Known(object);
    for (PagedArray<Links>& links : links_) links.Cover(object.id);
  }
  void Inserted(std::uint32_t tier, std::uint32_t id) { lists_[tier].PushNewest(links_[tier], id); }
  void Removed(std::uint32_t tier, std::uint32_t id) { lists_[tier].Unlink(links_[tier], id); }
  std::size_t Victims(std::uint32_t tier, std::uint64_t bytes, std::uint32_t* ids, std::size_t max) {
    std::size_t count = 0;
    std::uint64_t freed = 0;
    for (std::uint32_t id = lists_[tier].oldest(); id != TIERD_NO_OBJECT && count < max && freed < bytes; id = links_[tier][id].newer) {
      ids[count++] = id;
      freed += BytesOf(id);
    }
    return count;
  }

 private:
  PagedArray<Links> links_[TIERD_POLICY_TIERS];
  IdList lists_[TIERD_POLICY_TIERS];
};

}  // namespace

const tierd_policy_ops* FifoPolicy() { return Table<Fifo>("fifo", "who came first leaves first; a yardstick"); }

}  // namespace tierd::policies
