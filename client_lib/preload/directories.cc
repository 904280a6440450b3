#include "client_lib/preload/directories.h"

#include <errno.h>
#include <fcntl.h>

#include <cstring>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/room.h"
#include "client_lib/preload/slow_path.h"
#include "client_lib/preload/zero_table.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/thread_state.h"
#include "client_lib/src/views.h"

namespace tierd::preload {

// Positions: 0 ".", 1 "..", then 2 + the place of the entry in the listing. Of a directory that is read itself they are the kernel's.
struct CachedDirectory {
  std::atomic<bool> used;
  client::Piece piece;
  std::uint64_t position;
  ino_t self;
  ino_t parent;
  int fd;
  bool read_itself;
  unsigned left;         // of what the kernel has said, bytes that are still to be shown, and where they begin
  unsigned next;
  alignas(dirent64) char said[2048];
  dirent64 entry;
  char path[PATH_MAX];
};

namespace {

constexpr std::size_t kDirectories = 32;
constinit ZeroTable<CachedDirectory, kDirectories> pool;
constexpr std::size_t kLongestName = 255;

// Whether the bytes are a listing from the first to the last entry.
bool HoldsTogether(const client::Piece& piece) {
  std::uint64_t at = 0;
  while (at < piece.bytes) {
    abi::ListingEntry head;
    if (piece.bytes - at < sizeof head) return false;
    std::memcpy(&head, piece.data + at, sizeof head);
    const std::uint64_t bytes = abi::PadTo8(sizeof head + head.name_bytes);
    if (head.name_bytes == 0 || head.name_bytes > kLongestName || bytes > piece.bytes - at) return false;
    at += bytes;
  }
  return true;
}

bool FindPiece(const char* path, client::Piece& piece) {
  if (process.client->WithoutDaemon(client::CoarseNs()) != abi::Fallback::kNone) return false;
  if (StackIsSmall()) return false;
  const SlowPath slow;
  if (!slow.entered()) return false;
  const client::Call call(*process.client, path, 0);
  client::Target target;
  client::PathText text;
  if (client::FindListing(call, target, text, piece, nullptr) != abi::Fallback::kNone) return false;
  if (HoldsTogether(piece)) return true;
  piece.Free();
  return false;
}

void GiveBack(client::Piece& piece) {
  if (piece.held()) client::GiveLeaseBack(*piece.session, piece.lease, piece.epoch, 0);
  piece = {};
}

ino_t InodeOf(const char* path) {
  struct stat st;
  if (StatPath(path, true, st)) return st.st_ino;
  return raw::Call(SYS_newfstatat, AT_FDCWD, raw::Address(path), raw::Address(&st), 0) == 0 ? st.st_ino : 1;
}

ino_t InodeOfParent(const char* path) {
  Room room;
  if (room.Get() == nullptr) return 1;
  char* const parent = std::strcpy(room.Get()->text, path);
  char* const slash = std::strrchr(parent, '/');
  slash[slash == parent ? 1 : 0] = '\0';
  return InodeOf(parent);
}

}  // namespace

CachedDirectory* OpenDirectory(const char* path, int fd) {
  for (CachedDirectory& directory : pool) {
    bool unused = false;
    if (directory.used.load(std::memory_order_relaxed) || !directory.used.compare_exchange_strong(unused, true, std::memory_order_acq_rel)) continue;
    directory.piece = {};
    if (!FindPiece(path, directory.piece)) {
      directory.used.store(false, std::memory_order_release);
      return nullptr;
    }
    std::strcpy(directory.path, path);
    directory.position = 0;
    directory.read_itself = false;
    directory.fd = fd;
    directory.self = InodeOf(path);
    directory.parent = InodeOfParent(path);
    Count(counters.listings);
    return &directory;
  }
  return nullptr;
}

CachedDirectory* OurDirectory(DIR* directory) {
  return pool.Holds(directory) ? reinterpret_cast<CachedDirectory*>(directory) : nullptr;
}

DIR* AsDir(CachedDirectory* directory) { return reinterpret_cast<DIR*>(directory); }

namespace {

dirent64* ReadItself(CachedDirectory& directory) {
  if (directory.left == 0) {
    const long got = raw::Call(SYS_getdents64, DescriptorOf(directory), raw::Address(directory.said), sizeof directory.said);
    if (got < 0) errno = static_cast<int>(-got);
    if (got <= 0) return nullptr;
    directory.left = static_cast<unsigned>(got);
    directory.next = 0;
  }
  // Where it lies: its name may be longer than a dirent64 has room for (CIFS, exFAT, FUSE).
  auto* const entry = reinterpret_cast<dirent64*>(directory.said + directory.next);
  directory.next += entry->d_reclen;
  directory.left -= entry->d_reclen;
  directory.position = static_cast<std::uint64_t>(entry->d_off);
  return entry;
}

void SeekItself(CachedDirectory& directory, std::uint64_t position) {
  raw::Call(SYS_lseek, DescriptorOf(directory), static_cast<long>(position), SEEK_SET);
  directory.position = position;
  directory.left = 0;
}

}  // namespace

dirent64* ReadEntry(CachedDirectory& directory) {
  if (directory.read_itself) return ReadItself(directory);
  dirent64& entry = directory.entry;
  std::size_t name_bytes;
  if (directory.position < 2) {
    entry.d_ino = directory.position == 0 ? directory.self : directory.parent;
    entry.d_type = DT_DIR;
    name_bytes = directory.position + 1;
    std::memcpy(entry.d_name, "..", name_bytes);
    ++directory.position;
  } else {
    const std::uint64_t at = directory.position - 2;
    if (at >= directory.piece.bytes) return nullptr;
    abi::ListingEntry head;
    std::memcpy(&head, directory.piece.data + at, sizeof head);
    name_bytes = head.name_bytes <= kLongestName ? head.name_bytes : kLongestName;
    entry.d_ino = head.ino;
    entry.d_type = head.d_type;
    std::memcpy(entry.d_name, directory.piece.data + at + sizeof head, name_bytes);
    directory.position += abi::PadTo8(sizeof head + head.name_bytes);
  }
  entry.d_name[name_bytes] = '\0';
  entry.d_off = static_cast<off64_t>(directory.position);
  entry.d_reclen = static_cast<unsigned short>((offsetof(dirent64, d_name) + name_bytes + 8) / 8 * 8);
  return &entry;
}

long Tell(const CachedDirectory& directory) { return static_cast<long>(directory.position); }

void Seek(CachedDirectory& directory, long position) {
  if (directory.read_itself) return SeekItself(directory, static_cast<std::uint64_t>(position));
  // Only where an entry begins; elsewhere the result is undefined, and must not be a wild read.
  const auto wanted = static_cast<std::uint64_t>(position < 0 ? 0 : position);
  directory.position = wanted < 2 ? wanted : 2;
  while (directory.position < wanted && ReadEntry(directory) != nullptr) {
  }
}

void Rewind(CachedDirectory& directory) {
  const client::KeepErrno keep;
  client::Piece fresh;
  const bool found = FindPiece(directory.path, fresh);
  GiveBack(directory.piece);
  directory.piece = found ? fresh : client::Piece{};
  directory.position = 0;
  directory.read_itself = !found;
  if (!found) SeekItself(directory, 0);
}

int DescriptorOf(CachedDirectory& directory) {
  if (directory.fd < 0) directory.fd = raw::Open(AT_FDCWD, directory.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
  return directory.fd;
}

int Close(CachedDirectory& directory) {
  const client::KeepErrno keep;
  GiveBack(directory.piece);
  const int fd = directory.fd;
  directory.used.store(false, std::memory_order_release);
  return fd;
}

}  // namespace tierd::preload
