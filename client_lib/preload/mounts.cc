#include "client_lib/preload/mounts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <atomic>

#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/src/clock.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000U
#endif

namespace tierd::preload {
namespace {

constexpr std::size_t kRoots = client::Prefixes::kMax;
constexpr std::int64_t kLookEveryNs = 1'000'000'000;
// + 1; of the roots, as many as there are.
constinit std::atomic<std::uint64_t> devices[kRoots] = {};
constinit std::atomic<std::uint64_t> mounts[kRoots] = {};
constinit std::atomic<std::int64_t> looked_ns{0};
constinit std::atomic<const void*> looked_at{nullptr};  // the daemon's list of sources, where that says what the roots are
constinit std::atomic<bool> any_device{true};  // more roots than that, or one that cannot be looked at
constinit std::atomic<bool> any_mount{true};

// The kernel's struct statx as far as Linux 5.8 has it; the headers may be older.
struct Statx {
  std::uint32_t mask, block_bytes;
  std::uint64_t attributes;
  std::uint32_t links, uid, gid;
  std::uint16_t mode, spare;
  std::uint64_t inode, size, blocks, attributes_mask;
  std::uint64_t times[8];
  std::uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
  std::uint64_t mount;
  std::uint64_t more[13];
};
static_assert(sizeof(Statx) == 256);

bool Look(int directory, const char* path, int flags, Place& place) {
  Statx stx;
  constexpr unsigned kMask = STATX_TYPE | STATX_MNT_ID;
  const long result = raw::Call(SYS_statx, directory, raw::Address(path), flags | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, kMask, raw::Address(&stx));
  if (result == 0) {
    place = {makedev(stx.dev_major, stx.dev_minor), (stx.mask & STATX_MNT_ID) != 0 ? stx.mount + 1 : 0, stx.mode};
    return true;
  }
  struct stat st;  // a filter may refuse statx, with whatever error
  if (raw::Call(SYS_newfstatat, directory, raw::Address(path), raw::Address(&st), flags) != 0) return false;
  place = {st.st_dev, 0, st.st_mode};
  return true;
}

const client::SourceTable* ListOfSources() {
  const client::Session* const session = process.roots.count == 0 ? process.client->session() : nullptr;
  return session != nullptr ? session->sources.load(std::memory_order_acquire) : nullptr;
}

// A root that is a link leads to the mount of what it names.
void LookAtRoots(const client::SourceTable* sources) {
  bool devices_unknown = false, mounts_unknown = false;
  std::size_t used = 0;
  const auto look = [&](const char* root) {
    Place place;
    if (used == kRoots || !PlaceOfName(AT_FDCWD, root[0] != '\0' ? root : "/", place)) {
      devices_unknown = true;
      return;
    }
    mounts_unknown |= place.mount == 0;
    devices[used].store(place.device + 1, std::memory_order_relaxed);
    mounts[used++].store(place.mount, std::memory_order_relaxed);
  };
  for (std::size_t i = 0; i < process.roots.count; ++i) look(process.roots.text[i]);
  for (std::uint32_t i = 0; sources != nullptr && i < sources->count(); ++i) look(sources->at(i).root);
  if (process.roots.count == 0 && sources == nullptr) devices_unknown = true;
  for (; used < kRoots; ++used) {
    devices[used].store(0, std::memory_order_relaxed);
    mounts[used].store(0, std::memory_order_relaxed);
  }
  any_mount.store(mounts_unknown, std::memory_order_relaxed);
  any_device.store(devices_unknown, std::memory_order_relaxed);
}

}  // namespace

bool PlaceOfName(int directory, const char* path, Place& place) { return Look(directory, path, 0, place); }
bool PlaceOfDescriptor(int fd, Place& place) { return Look(fd, "", AT_EMPTY_PATH, place); }

bool MayBeOnSource(const Place& place) {
  const std::int64_t now_ns = client::CoarseNs();
  const std::int64_t looked = looked_ns.load(std::memory_order_acquire);
  const client::SourceTable* const sources = ListOfSources();
  if (looked == 0 || now_ns - looked > kLookEveryNs || sources != looked_at.load(std::memory_order_relaxed)) {
    LookAtRoots(sources);
    looked_at.store(sources, std::memory_order_relaxed);
    looked_ns.store(now_ns, std::memory_order_release);
  }
  const bool by_mount = place.mount != 0 && !any_mount.load(std::memory_order_relaxed);
  if (any_device.load(std::memory_order_relaxed) || (!by_mount && !S_ISDIR(place.mode))) return true;
  for (std::size_t i = 0; i < kRoots; ++i) {
    if (devices[i].load(std::memory_order_relaxed) == place.device + 1) return true;
    if (by_mount && mounts[i].load(std::memory_order_relaxed) == place.mount) return true;
  }
  return false;
}

}  // namespace tierd::preload
