#include "client_lib/preload/memory_copies.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/room.h"

namespace tierd::preload {

namespace memory_copies_detail {
constinit std::atomic<std::uint32_t> count{0};
}

namespace {

constexpr std::uint32_t kCopies = 64;  // the latest ones
struct Copy {
  std::atomic<std::uint64_t> inode;  // of the memory; 0: none, or just being written
  std::uint64_t device;
  client::FileFacts facts;
  std::uint64_t dev;
  int flags;
  char path[PATH_MAX];
};
Copy copies[kCopies];
constinit std::atomic<std::uint32_t> next{0};

// The copy behind a descriptor; null: it is none.
const Copy* CopyBehind(int fd) {
  struct stat st;
  if (raw::Stat(fd, st) != 0) return nullptr;
  for (const Copy& copy : copies) {
    if (copy.inode.load(std::memory_order_acquire) == st.st_ino && copy.device == st.st_dev) return &copy;
  }
  return nullptr;
}

// The file that it is a copy of; -ENOLCK: there is another one at its path, or none.
int OpenOriginal(const Copy& copy) {
  Room room;
  if (room.Get() == nullptr) return -ENOLCK;
  char* const path = room.Get()->text;
  const std::uint64_t inode = copy.inode.load(std::memory_order_acquire), original = copy.facts.ino;
  std::strcpy(path, copy.path);
  const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | copy.flags;
  if (copy.inode.load(std::memory_order_acquire) != inode) return -ENOLCK;  // it has just made room for another copy
  int fd = raw::Open(AT_FDCWD, path, flags);
  if (fd == -EPERM) fd = raw::Open(AT_FDCWD, path, flags & ~O_NOATIME);
  if (fd < 0) return -ENOLCK;
  struct stat st;
  if (raw::Stat(fd, st) == 0 && st.st_ino == original) return fd;
  CloseOwnFile(fd);
  return -ENOLCK;
}

}  // namespace

void NoteMemoryCopy(int fd, const Description& d) {
  struct stat st;
  if (raw::Stat(fd, st) != 0) return;
  Copy& copy = copies[next.fetch_add(1, std::memory_order_relaxed) % kCopies];
  copy.inode.store(0, std::memory_order_release);
  copy.device = st.st_dev;
  copy.facts = d.facts;
  copy.dev = d.dev;
  copy.flags = d.flags & (O_NOATIME | O_NONBLOCK);
  std::strcpy(copy.path, d.path);
  copy.inode.store(st.st_ino, std::memory_order_release);
  memory_copies_detail::count.fetch_add(1, std::memory_order_release);
}

bool memory_copies_detail::Show(struct stat& st) {
  for (const Copy& copy : copies) {
    if (copy.inode.load(std::memory_order_acquire) != st.st_ino || copy.device != st.st_dev) continue;
    StatOfFacts(copy.facts, copy.dev, st);
    return true;
  }
  return false;
}

int memory_copies_detail::Reopen(int fd) {
  const Copy* const copy = CopyBehind(fd);
  if (copy == nullptr) return 0;
  const int original = OpenOriginal(*copy);
  if (original < 0) return original;
  raw::Call(SYS_lseek, original, raw::Call(SYS_lseek, fd, 0, SEEK_CUR), SEEK_SET);
  // Its duplicates go with it, `fd` last: by it they are known.
  for (int number = 0; number <= static_cast<int>(raw::kWatched); ++number) {
    const int one = number == static_cast<int>(raw::kWatched) ? fd : number;
    if (one == original || (one == fd && one == number) || CopyBehind(one) != copy) continue;
    raw::Dup3(original, one, (raw::Call(SYS_fcntl, one, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
  }
  CloseOwnFile(original);
  return CopyBehind(fd) == nullptr ? 0 : -ENOLCK;
}

}  // namespace tierd::preload
