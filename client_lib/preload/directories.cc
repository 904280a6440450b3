#include "client_lib/preload/directories.h"

#include <errno.h>
#include <fcntl.h>

#include <bit>
#include <cstring>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/room.h"
#include "client_lib/preload/slow_path.h"
#include "client_lib/preload/writers.h"
#include "client_lib/preload/zero_table.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/thread_state.h"
#include "client_lib/src/views.h"

namespace tierd::preload {

// Positions: 0 ".", 1 "..", then 2 + the place of the entry in the listing. Of a directory that is read itself they are the kernel's.
struct CachedDirectory {
  // Low half: 0 while nobody has it, 1 without a descriptor of the directory itself, 2 + that; high half: how often it was given back.
  std::atomic<std::uint64_t> opened;
  client::Piece piece;
  std::uint64_t position;
  dev_t device;
  ino_t self;
  ino_t parent;
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
constinit std::atomic<std::uint32_t> used{0};  // a bit for each of them
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

bool FindListing(const char* path, client::Piece& piece) {
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

bool Identify(const char* path, struct stat& st) {
  return StatPath(path, true, st) || raw::Call(SYS_newfstatat, AT_FDCWD, raw::Address(path), raw::Address(&st), 0) == 0;
}

// The listing, and which directory it is of. False: there is none to give back.
bool FindPiece(const char* path, client::Piece& piece, struct stat& st) {
  client::Piece found;
  piece = {};
  if (!FindListing(path, found)) return false;
  if (Identify(path, st)) piece = found;
  else GiveBack(found);
  return piece.held();
}

bool IsSame(const CachedDirectory& directory, const struct stat& st) { return st.st_dev == directory.device && st.st_ino == directory.self; }

ino_t InodeOfParent(const char* path) {
  Room room;
  if (room.Get() == nullptr) return 1;
  char* const parent = std::strcpy(room.Get()->text, path);
  char* const slash = std::strrchr(parent, '/');
  slash[slash == parent ? 1 : 0] = '\0';
  struct stat st;
  return Identify(parent, st) ? st.st_ino : 1;
}

CachedDirectory* TakePlace() {
  std::uint32_t taken = used.load(std::memory_order_relaxed);
  while (taken != ~std::uint32_t{0}) {
    const int place = std::countr_one(taken);
    if (used.compare_exchange_weak(taken, taken | std::uint32_t{1} << place, std::memory_order_acq_rel)) return &pool[static_cast<std::size_t>(place)];
  }
  return nullptr;
}

void GivePlaceBack(const CachedDirectory& directory) { used.fetch_and(~(std::uint32_t{1} << (&directory - pool.begin())), std::memory_order_acq_rel); }

// ---- the directory itself ----------------------------------------------------------------------------------------------------

constexpr std::uint64_t kTimes = std::uint64_t{1} << 32;
bool HasDescriptor(std::uint64_t opened) { return opened % kTimes > 1; }
int DescriptorIn(std::uint64_t opened) { return static_cast<int>(opened % kTimes) - 2; }

// By its name, if that leads to it still. Threads that change names open what others list: what is given back meanwhile, and taken for another perhaps, is left alone.
int OpenItself(CachedDirectory& directory) {
  std::uint64_t opened = directory.opened.load(std::memory_order_acquire);
  if (opened % kTimes != 1) return HasDescriptor(opened) ? DescriptorIn(opened) : -EBADF;
  const int fd = WithReserve([&] { return raw::Open(AT_FDCWD, directory.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) return fd;
  struct stat st;
  const bool same = raw::Stat(fd, st) == 0 && IsSame(directory, st);
  if (same && directory.opened.compare_exchange_strong(opened, opened + static_cast<unsigned>(fd) + 1, std::memory_order_acq_rel)) return fd;
  raw::Close(fd);
  return same && HasDescriptor(opened) ? DescriptorIn(opened) : -ESTALE;
}

}  // namespace

CachedDirectory* OpenDirectory(const char* path, int fd) {
  if (IsWatchedDirectory(path)) return nullptr;
  CachedDirectory* const directory = TakePlace();
  if (directory == nullptr) return nullptr;
  struct stat st;
  if (!FindPiece(path, directory->piece, st)) {
    GivePlaceBack(*directory);
    return nullptr;
  }
  std::strcpy(directory->path, path);
  directory->position = 0;
  directory->read_itself = false;
  directory->device = st.st_dev;
  directory->self = st.st_ino;
  directory->parent = InodeOfParent(path);
  directory->opened.fetch_add(static_cast<unsigned>(fd + 2), std::memory_order_release);
  Count(counters.listings);
  return directory;
}

CachedDirectory* OurDirectory(DIR* directory) {
  return pool.Holds(directory) ? reinterpret_cast<CachedDirectory*>(directory) : nullptr;
}

DIR* AsDir(CachedDirectory* directory) { return reinterpret_cast<DIR*>(directory); }

namespace {

dirent64* ReadItself(CachedDirectory& directory) {
  if (directory.left == 0) {
    const int fd = DescriptorOf(directory);
    const long got = fd < 0 ? fd : raw::Call(SYS_getdents64, fd, raw::Address(directory.said), sizeof directory.said);
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
  // What a descriptor is open of may have another name by now; and the name may be another directory's.
  const bool by_name = Active() && !HasDescriptor(directory.opened.load(std::memory_order_acquire));
  struct stat st;
  GiveBack(directory.piece);
  const bool found = by_name && FindPiece(directory.path, directory.piece, st) && IsSame(directory, st);
  if (!found) GiveBack(directory.piece);
  directory.position = 0;
  directory.read_itself = !found;
  if (!found) SeekItself(directory, 0);
}

int DescriptorOf(CachedDirectory& directory) { return OpenItself(directory); }

void OpenDirectoriesBelow(const char* path) {
  const std::size_t bytes = std::strlen(path);
  for (std::uint32_t left = used.load(std::memory_order_acquire); left != 0; left &= left - 1) {
    CachedDirectory& directory = pool[static_cast<std::size_t>(std::countr_zero(left))];
    const char next = std::strncmp(directory.path, path, bytes) == 0 ? directory.path[bytes] : ' ';
    if (bytes == 0 || next == '/' || next == '\0') (void)OpenItself(directory);
  }
}

int Close(CachedDirectory& directory) {
  const client::KeepErrno keep;
  GiveBack(directory.piece);
  std::uint64_t opened = directory.opened.load(std::memory_order_acquire);
  while (!directory.opened.compare_exchange_weak(opened, (opened / kTimes + 1) * kTimes, std::memory_order_acq_rel)) {
  }
  GivePlaceBack(directory);
  return HasDescriptor(opened) ? DescriptorIn(opened) : -1;
}

}  // namespace tierd::preload
