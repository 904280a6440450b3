// Lists over dense ids whose links lie in one array: an id is in at most one list of the lists that share the array. Every operation
// is O(1) and allocates nothing. Value types, no thread rule.
#pragma once

#include <cstdint>

#include "policies/paged_array.h"
#include "policies/tierd_policy.h"

namespace tierd::policies {

struct Links {
  std::uint32_t newer = TIERD_NO_OBJECT;
  std::uint32_t older = TIERD_NO_OBJECT;
};

class IdList {
 public:
  std::uint32_t oldest() const { return oldest_; }  // TIERD_NO_OBJECT when empty
  void PushNewest(PagedArray<Links>& links, std::uint32_t id) {
    links[id] = {TIERD_NO_OBJECT, newest_};
    (newest_ == TIERD_NO_OBJECT ? oldest_ : links[newest_].newer) = id;
    newest_ = id;
  }
  void Unlink(PagedArray<Links>& links, std::uint32_t id) {
    const Links own = links[id];
    (own.newer == TIERD_NO_OBJECT ? newest_ : links[own.newer].older) = own.older;
    (own.older == TIERD_NO_OBJECT ? oldest_ : links[own.older].newer) = own.newer;
  }

 private:
  std::uint32_t newest_ = TIERD_NO_OBJECT;
  std::uint32_t oldest_ = TIERD_NO_OBJECT;
};

}  // namespace tierd::policies
