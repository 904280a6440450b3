// The C ABI for whole files: the hit path in full, everything else in whole.cc and batch.cc.
#include <errno.h>

#include <cstring>

#include "client_lib/src/copy.h"
#include "client_lib/src/finish.h"
#include "client_lib/src/path_text.h"
#include "client_lib/src/process.h"
#include "client_lib/src/views.h"
#include "client_lib/src/whole.h"

namespace tierd::client {
namespace {

constexpr unsigned kWholeFlags = TIER_CACHED | TIER_NOWAIT | TIER_COPY;

// The bytes of a file of one chunk that is in RAM, under a lease, or null: then the slow path looks closer.
template <LeaseUse kUse>
inline Session* Hit(Client& client, const char* path, Piece& piece, std::int64_t* now_ns) {
  Session* const session = client.session();
  if (session == nullptr || session->check_all) [[unlikely]] return nullptr;
  const std::size_t bytes = std::strlen(path);
  const char* relative;
  std::size_t relative_bytes;
  const Source* const source = session->sources.load(std::memory_order_acquire)->Match(path, bytes, &relative, &relative_bytes);
  if (source == nullptr || !source->Plain()) [[unlikely]] return nullptr;
  const IndexView& index = *session->index.load(std::memory_order_acquire);
  const abi::FileKey key = index.KeyOf(source->id, relative, relative_bytes);
  PrefetchSlot(index, key);
  // While the slot comes from memory: the root is canonical and was matched byte by byte, so the '/' behind it and the rest are what is left to look at.
  if (!IsCanonical(path + source->root_bytes, bytes - source->root_bytes)) [[unlikely]] return nullptr;
  *now_ns = CoarseNs();
  if (*now_ns >= session->look_at_ns.load(std::memory_order_relaxed)) [[unlikely]] return nullptr;  // Acquire looks at the daemon
  const LookUp look_up{*session, index, *now_ns, false, nullptr};
  if (LookUpFile<kUse>(look_up, key, piece, nullptr) != Look::kHit) return nullptr;
  return session;
}

inline bool HitViewHere(Client& client, const char* path, tier_view& view) {
  const std::int64_t start_ns = SampleThisHit() ? PreciseNs() : 0;
  Piece piece;
  std::int64_t now_ns;
  Session* const session = Hit<LeaseUse::kView>(client, path, piece, &now_ns);
  if (session == nullptr) return false;
  if (!Account(*session, piece.bytes)) [[unlikely]] {
    piece.Free();
    return false;
  }
  LeasedView(piece, piece.data, static_cast<std::size_t>(piece.bytes), view);
  CountHit(*session, piece, piece.bytes, now_ns, start_ns);
  return true;
}

// Bytes copied, or -1: the slow path looks closer.
inline ssize_t HitCopy(Client& client, const char* path, void* buffer, std::size_t count, std::uint64_t offset, std::uint64_t* file_size) {
  const std::int64_t start_ns = SampleThisHit() ? PreciseNs() : 0;
  Piece piece;
  std::int64_t now_ns;
  Session* const session = Hit<LeaseUse::kCall>(client, path, piece, &now_ns);
  if (session == nullptr) return -1;
  std::size_t bytes = 0;
  if (offset < piece.bytes) {
    bytes = piece.bytes - offset < count ? static_cast<std::size_t>(piece.bytes - offset) : count;
    CopyOut(buffer, piece.data + offset, bytes);
  }
  const bool revoked = session->page->revoked.load(std::memory_order_acquire) != 0;  // HAZARDS 2.5: after the copy
  FreeLease(*session->page, piece.lease);
  if (revoked) [[unlikely]] return -1;
  if (file_size != nullptr) *file_size = piece.bytes;
  CountHit(*session, piece, bytes, now_ns, start_ns);
  return static_cast<ssize_t>(bytes);
}

}  // namespace

bool HitView(Client& client, const char* path, tier_view& view) { return HitViewHere(client, path, view); }

}  // namespace tierd::client

using namespace tierd::client;

int tier_get(tier_client* client, const char* path, tier_view* view, unsigned flags) noexcept {
  if (path == nullptr || view == nullptr || (flags & ~kWholeFlags) != 0) return -EINVAL;
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
