// The hit path of a path: from the text of the application to leased bytes, without a system call. Shared by the C ABI and by the preload library, which keeps
// what it leased in a descriptor instead of in a view.
//
// Any thread. It does not: ask the daemon, count, allocate.
#pragma once

#include <cstring>

#include "client_lib/src/client.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/lookup.h"
#include "client_lib/src/path_text.h"

namespace tierd::client {

// Where a path leads in the shared index, or null: then the slow path looks closer.
struct HitPlace {
  Session* session = nullptr;
  const Source* source = nullptr;
  const IndexView* index = nullptr;
  abi::FileKey key;
  std::int64_t now_ns = 0;
  std::uint64_t changes = 0;  // of the index header, before anything of a slot is read
};

// `path` is absolute. False as well when it is time to look whether the daemon is still there, unless that does not matter (`whoever`).
[[gnu::always_inline]] inline bool FindHitPlace(Client& client, const char* path, HitPlace& place, bool whoever = false) {
  Session* const session = client.session();
  if (session == nullptr || session->check_all) [[unlikely]] return false;
  const std::size_t bytes = std::strlen(path);
  const char* relative;
  std::size_t relative_bytes;
  const Source* const source = session->sources.load(std::memory_order_acquire)->Match(path, bytes, &relative, &relative_bytes);
  if (source == nullptr || !source->Plain()) [[unlikely]] return false;
  place.index = session->index.load(std::memory_order_acquire);
  place.key = place.index->KeyOf(source->id, relative, relative_bytes);
  PrefetchSlot(*place.index, place.key);
  place.changes = place.index->header->changes.load(std::memory_order_acquire);
  // While the slot comes from memory: the root is canonical and was matched byte by byte, so the '/' behind it and the rest are what is left to look at.
  if (!IsCanonical(path + source->root_bytes, bytes - source->root_bytes)) [[unlikely]] return false;
  place.now_ns = CoarseNs();
  if (!whoever && place.now_ns >= session->look_at_ns.load(std::memory_order_relaxed)) [[unlikely]] return false;  // Acquire looks at the daemon
  place.session = session;
  place.source = source;
  return true;
}

// The bytes of a file of one chunk that is in RAM, under a lease; `facts`, if not null, gets what stat says about it.
template <LeaseUse kUse>
[[gnu::always_inline]] inline bool Hit(Client& client, const char* path, Piece& piece, HitPlace& place, FileFacts* facts) {
  if (!FindHitPlace(client, path, place)) return false;
  const LookUp look_up{*place.session, *place.index, place.now_ns, false, facts};
  return LookUpHere<kUse>(look_up, place.key, piece, nullptr) == Look::kHit;
}

}  // namespace tierd::client
