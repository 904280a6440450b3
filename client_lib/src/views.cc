#include "client_lib/src/views.h"

#include <sys/mman.h>

#include <cstdlib>

#include "client_lib/src/fork_mark.h"

namespace tierd::client {

void EmptyView(abi::Tier tier, tier_view& view) {
  static const char kNothing[1] = {0};
  view = {};
  view.data = kNothing;
  view.origin = OriginOf(tier);
  view.kind_ = kViewEmpty;
}

void PrivateView(void* block, std::size_t size, abi::Tier tier, tier_view& view) {
  view = {};
  view.data = block;
  view.size = size;
  view.origin = OriginOf(tier);
  view.kind_ = kViewPrivate;
  view.opaque_[0] = reinterpret_cast<std::uint64_t>(block);
}

void MappedView(MappedChunks* chunks, std::size_t size, abi::Tier tier, tier_view& view) {
  view = {};
  view.data = chunks->data;
  view.size = size;
  view.origin = OriginOf(tier);
  view.kind_ = kViewMapped;
  view.opaque_[0] = reinterpret_cast<std::uint64_t>(chunks);
}

void ReleaseOther(tier_view& view) {
  if (view.kind_ == kViewPrivate) {
    std::free(reinterpret_cast<void*>(view.opaque_[0]));
  } else if (view.kind_ == kViewMapped) {
    auto* const chunks = reinterpret_cast<MappedChunks*>(view.opaque_[0]);
    ::munmap(chunks->data, chunks->bytes);  // first: the leases vouch for what is mapped
    for (std::uint32_t i = 0; i < chunks->count; ++i) {
      const MappedChunks::Held& held = chunks->held[i];
      GiveLeaseBack(*held.session, held.lease, held.epoch, held.bytes);
    }
    std::free(chunks);
  }
}

}  // namespace tierd::client
