// The C ABI for whole files: the hit path in full, everything else in whole.cc and batch.cc.
#include <errno.h>

#include <cstring>

#include "client_lib/src/copy.h"
#include "client_lib/src/finish.h"
#include "client_lib/src/hit.h"
#include "client_lib/src/process.h"
#include "client_lib/src/views.h"
#include "client_lib/src/whole.h"

namespace tierd::client {
namespace {

constexpr unsigned kWholeFlags = TIER_CACHED | TIER_NOWAIT | TIER_COPY;

inline bool HitViewHere(Client& client, const char* path, tier_view& view) {
  const std::int64_t start_ns = SampleThisHit() ? PreciseNs() : 0;
  Piece piece;
  HitPlace place;
  if (!Hit<LeaseUse::kView>(client, path, piece, place, nullptr)) return false;
  Session* const session = place.session;
  if (!Account(*session, piece.bytes)) [[unlikely]] {
    piece.Free();
    return false;
  }
  LeasedView(piece, piece.data, static_cast<std::size_t>(piece.bytes), view);
  CountHit(*session, piece, piece.bytes, place.now_ns);
  TimeHit(*session, start_ns);
  return true;
}

// Bytes copied, or -1: the slow path looks closer.
[[gnu::always_inline]] inline ssize_t HitCopy(Client& client, const char* path, void* buffer, std::size_t count, std::uint64_t offset, std::uint64_t* file_size) {
  const std::int64_t start_ns = SampleThisHit() ? PreciseNs() : 0;
  Piece piece;
  HitPlace place;
  if (!Hit<LeaseUse::kCall>(client, path, piece, place, nullptr)) return -1;
  Session* const session = place.session;
  std::size_t bytes = 0;
  if (offset < piece.bytes) bytes = piece.bytes - offset < count ? static_cast<std::size_t>(piece.bytes - offset) : count;
  CountHit(*session, piece, bytes, place.now_ns);
  if (bytes != 0) CopyOut(buffer, piece.data + offset, bytes, bytes);
  const bool revoked = session->page->revoked.load(std::memory_order_acquire) != 0;  // HAZARDS 2.5: after the copy
  if (revoked) [[unlikely]] UncountHit(*session, bytes);
  FreeLease(*session->page, piece.lease);
  if (revoked) [[unlikely]] return -1;
  if (file_size != nullptr) *file_size = piece.bytes;
  TimeHit(*session, start_ns);
  return static_cast<ssize_t>(bytes);
}

}  // namespace

bool HitView(Client& client, const char* path, tier_view& view) { return HitViewHere(client, path, view); }

}  // namespace tierd::client

using namespace tierd::client;

int tier_get(tier_client* client, const char* path, tier_view* view, unsigned flags) noexcept {
  if (path == nullptr || view == nullptr || (flags & ~kWholeFlags) != 0) [[unlikely]] {
    if (view != nullptr) *view = {};
    return -EINVAL;
  }
  Client& c = ClientOf(client);
  if ((flags & TIER_COPY) == 0 && HitViewHere(c, path, *view)) return 0;
  const KeepErrno keep;
  return GetSlow(c, path, flags, *view);
}

void tier_release(tier_view* view) noexcept {
  if (view == nullptr || view->kind_ == kViewNone) return;
  if (view->kind_ == kViewLeased) {
    auto& session = *reinterpret_cast<Session*>(view->opaque_[0]);
    GiveLeaseBack(session, static_cast<std::uint32_t>(view->opaque_[1]), static_cast<std::uint32_t>(view->opaque_[1] >> 32), view->opaque_[2]);
  } else {
    const KeepErrno keep;
    ReleaseOther(*view);
  }
  *view = {};
}

ssize_t tier_read_file(tier_client* client, const char* path, void* buffer, size_t capacity, uint64_t* file_size, unsigned flags) noexcept {
  if (path == nullptr || (buffer == nullptr && capacity != 0) || (flags & ~kWholeFlags) != 0) return -EINVAL;
  Client& c = ClientOf(client);
  if (const ssize_t bytes = HitCopy(c, path, buffer, capacity, 0, file_size); bytes >= 0) return bytes;
  const KeepErrno keep;
  return ReadSlow(c, path, buffer, capacity, 0, file_size, flags);
}

ssize_t tier_pread(tier_client* client, const char* path, void* buffer, size_t count, int64_t offset, unsigned flags) noexcept {
  if (path == nullptr || (buffer == nullptr && count != 0) || offset < 0 || (flags & ~kWholeFlags) != 0) return -EINVAL;
  Client& c = ClientOf(client);
  if (const ssize_t bytes = HitCopy(c, path, buffer, count, static_cast<std::uint64_t>(offset), nullptr); bytes >= 0) return bytes;
  const KeepErrno keep;
  return ReadSlow(c, path, buffer, count, static_cast<std::uint64_t>(offset), nullptr, flags);
}
