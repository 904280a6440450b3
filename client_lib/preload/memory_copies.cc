#include "client_lib/preload/memory_copies.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/mailbox.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/room.h"
#include "client_lib/preload/spin_lock.h"
#include "client_lib/preload/zero_table.h"

namespace tierd::preload {

namespace memory_copies_detail {
constinit std::atomic<std::uint32_t> count{0};
}

namespace {

constexpr std::uint32_t kCopies = 64;
struct Copy {
  std::atomic<std::uint64_t> inode;    // of the memory; 0: none, or just being written
  std::atomic<std::uint32_t> numbers;  // that name it here
  std::uint64_t device;
  client::FileFacts facts;
  std::uint64_t dev;
  int flags;
  client::AddedBytes added;
  char path[PATH_MAX];
};
constinit ZeroTable<Copy, kCopies> copies;
// For those who inherit them.
struct Mailbox {
  std::atomic<int> number{-1};
};
constinit Mailbox mailboxes[kCopies];
std::atomic<int>& MailboxOf(const Copy& copy) { return mailboxes[&copy - copies.begin()].number; }
constinit std::atomic<std::uint32_t> next{0};
constinit std::atomic<std::uint8_t> copy_of[raw::kWatched] = {};  // by number: which copy, + 1
// Guards the numbers, and what a mailbox is while it is used.
constinit std::atomic<std::uint32_t> lock_word{0};

// The copy behind a descriptor; null: it is none.
Copy* CopyBehind(int fd) {
  struct stat st;
  if (raw::Stat(fd, st) != 0) return nullptr;
  for (Copy& copy : copies) {
    if (copy.inode.load(std::memory_order_acquire) == st.st_ino && copy.device == st.st_dev) return &copy;
  }
  return nullptr;
}

// What is at `path`, if it is that file; else -ENOLCK.
int OpenFile(const char* path, int flags, std::uint64_t inode) {
  int fd = raw::Open(AT_FDCWD, path, flags);
  if (fd == -EPERM) fd = raw::Open(AT_FDCWD, path, flags & ~O_NOATIME);
  if (fd < 0) return -ENOLCK;
  struct stat st;
  if (raw::Stat(fd, st) == 0 && st.st_ino == inode) return fd;
  CloseOwnFile(fd);
  return -ENOLCK;
}

// The file that it is a copy of, by its path or by that number (-1: none); -ENOLCK: there is another one, or none.
int OpenOriginal(const Copy& copy, int at) {
  Room room;
  if (room.Get() == nullptr) return -ENOLCK;
  char* const path = room.Get()->text;
  const std::uint64_t inode = copy.inode.load(std::memory_order_acquire), original = copy.facts.ino;
  std::strcpy(path, copy.path);
  const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | copy.flags;
  if (copy.inode.load(std::memory_order_acquire) != inode) return -ENOLCK;  // it has just made room for another copy
  const int fd = OpenFile(path, flags, original);
  if (fd >= 0 || at < 0) return fd;
  ::snprintf(path, 32, "/proc/self/fd/%d", at);
  return OpenFile(path, flags, original);
}

void CloseMailbox(const Copy& copy) {
  if (const int mailbox = TakeOwn(MailboxOf(copy)); mailbox >= 0) raw::Close(mailbox);
}

// Under the lock.
void Unname(int fd) {
  const std::uint8_t known = copy_of[fd].exchange(0, std::memory_order_relaxed);
  if (known == 0) return;
  Copy& copy = copies[known - 1];
  // Nobody here has it any more: what another process leaves in the mailbox is not kept open by us.
  if (copy.numbers.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  CloseMailbox(copy);
  client::GiveAdded(*process.client, copy.added);
}
void Name(int fd, const Copy& copy) {
  if (static_cast<unsigned>(fd) >= raw::kWatched) return;
  const auto which = static_cast<std::uint8_t>(&copy - copies.begin() + 1);
  if (copy_of[fd].load(std::memory_order_relaxed) == which) return;
  Unname(fd);
  raw::Note(fd);
  copy_of[fd].store(which, std::memory_order_relaxed);
  copies[which - 1].numbers.fetch_add(1, std::memory_order_relaxed);
}

// One that nobody has here; else, if it must be, the oldest, which is a nameless file of memory from then on.
Copy* FreeCopy(CopyUse use) {
  for (Copy& copy : copies) {
    if (copy.numbers.load(std::memory_order_relaxed) == 0) return &copy;
  }
  if (use == CopyUse::kShared) return nullptr;
  Copy& copy = copies[next.fetch_add(1, std::memory_order_relaxed) % kCopies];
  copy.added = {};  // the memory stays as long as its numbers do, and counts for good
  for (int fd = 0; fd < static_cast<int>(raw::kWatched); ++fd) {
    if (copy_of[fd].load(std::memory_order_relaxed) == &copy - copies.begin() + 1) Unname(fd);
  }
  return &copy;
}

// What the processes that share the copy share from now on: under the lock, the copy's mailbox being there. Takes `original`, or gives it back.
int Share(const Copy& copy, int original) {
  const int mailbox = MailboxOf(copy).load(std::memory_order_acquire);
  const int shared = mailbox >= 0 ? LeaveAndTake(mailbox, original) : -ENOENT;
  if (shared < 0) return original;
  CloseOwnFile(original);
  return shared;
}

void Replace(int number, int original) { raw::Dup3(original, number, (raw::Call(SYS_fcntl, number, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0); }

// All numbers of the copy, and `fd`, become `original`, which the caller keeps. Under the lock.
void BecomeFile(Copy& copy, int fd, int original) {
  for (int number = 0; number < static_cast<int>(raw::kWatched); ++number) {
    if (copy_of[number].load(std::memory_order_relaxed) != &copy - copies.begin() + 1) continue;
    if (number != original && CopyBehind(number) == &copy) Replace(number, original);
    Unname(number);
  }
  if (CopyBehind(fd) == &copy) Replace(fd, original);
}

// In a vfork child, whose numbers are its own and whose memory is its parent's: that number alone, and what is known of it stays.
int ReplaceForChild(const Copy& copy, int fd) {
  const int original = OpenOriginal(copy, -1);
  if (original < 0) return original;
  raw::Call(SYS_lseek, original, raw::Call(SYS_lseek, fd, 0, SEEK_CUR), SEEK_SET);
  Replace(fd, original);
  raw::Close(original);
  return 0;
}

}  // namespace

bool NoteMemoryCopy(int fd, const Description& d, CopyUse use, client::AddedBytes& added) {
  struct stat st;
  if (raw::Stat(fd, st) != 0) return use == CopyUse::kAlone;
  const int mailbox = use == CopyUse::kShared ? MakeMailbox() : -1;
  if (use == CopyUse::kShared && mailbox < 0) return false;
  const int kept = mailbox < 0 ? -1 : raw::DupFrom(mailbox, OwnBase());
  if (kept >= 0) raw::Close(mailbox);
  const SpinLock lock(lock_word);
  Copy* const copy = FreeCopy(use);
  if (copy == nullptr || (mailbox >= 0 && !HoldOwn(kept >= 0 ? kept : mailbox, MailboxOf(*copy)))) {
    if (mailbox >= 0) raw::Close(kept >= 0 ? kept : mailbox);
    return false;
  }
  client::GiveAdded(*process.client, copy->added);  // of one that nobody names here
  copy->added = added;
  added = {};
  copy->inode.store(0, std::memory_order_release);
  copy->device = st.st_dev;
  copy->facts = d.facts;
  copy->dev = d.dev;
  copy->flags = d.flags & (O_NOATIME | O_NONBLOCK);
  std::strcpy(copy->path, d.path);
  copy->inode.store(st.st_ino, std::memory_order_release);
  Name(fd, *copy);
  memory_copies_detail::count.fetch_add(1, std::memory_order_release);
  return true;
}

void memory_copies_detail::NameCopy(int fd) {
  const SpinLock lock(lock_word);
  if (const Copy* const copy = CopyBehind(fd); copy != nullptr) Name(fd, *copy);
}

void memory_copies_detail::CopyToo(int from, int to) {
  if (static_cast<unsigned>(from) >= raw::kWatched) return;
  const SpinLock lock(lock_word);
  if (const std::uint8_t known = copy_of[from].load(std::memory_order_relaxed); known != 0) Name(to, copies[known - 1]);
}

void memory_copies_detail::Forget(int fd) {
  if (static_cast<unsigned>(fd) >= raw::kWatched || copy_of[fd].load(std::memory_order_relaxed) == 0) return;
  const SpinLock lock(lock_word);
  Unname(fd);
}

bool memory_copies_detail::Show(struct stat& st) {
  for (const Copy& copy : copies) {
    if (copy.inode.load(std::memory_order_acquire) != st.st_ino || copy.device != st.st_dev) continue;
    StatOfFacts(copy.facts, copy.dev, st);
    return true;
  }
  return false;
}

int memory_copies_detail::Reopen(int fd, int at) {
  Copy* const copy = CopyBehind(fd);
  if (copy == nullptr) return 0;
  if (vfork_depth != 0) return ReplaceForChild(*copy, fd);
  int original;
  {
    const SpinLock lock(lock_word);
    const int mailbox = MailboxOf(*copy).load(std::memory_order_acquire);
    original = mailbox >= 0 ? TakeFromMailbox(mailbox) : -ENOENT;
  }
  const bool opened = original < 0;
  if (opened) original = OpenOriginal(*copy, at);  // may take its time
  if (original < 0) return original;
  {
    const SpinLock lock(lock_word);
    if (CopyBehind(fd) == copy) {
      if (opened) raw::Call(SYS_lseek, original, raw::Call(SYS_lseek, fd, 0, SEEK_CUR), SEEK_SET);
      if (opened) original = Share(*copy, original);
      BecomeFile(*copy, fd, original);
    }
  }
  CloseOwnFile(original);
  return CopyBehind(fd) == nullptr ? 0 : -ENOLCK;
}

void memory_copies_detail::ReopenFile(std::uint64_t inode, int at) {
  for (const Copy& copy : copies) {
    if (copy.numbers.load(std::memory_order_relaxed) == 0 || copy.facts.ino != inode) continue;
    int fd = 0;
    while (fd < static_cast<int>(raw::kWatched) && copy_of[fd].load(std::memory_order_relaxed) != &copy - copies.begin() + 1) ++fd;
    if (fd < static_cast<int>(raw::kWatched)) (void)Reopen(fd, at);
  }
}

void memory_copies_detail::ReopenInherited(bool all) {
  for (int fd = 0; fd < static_cast<int>(raw::kWatched); ++fd) {
    if (copy_of[fd].load(std::memory_order_relaxed) != 0 && (all || (raw::Call(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC) == 0)) (void)Reopen(fd);
  }
}

}  // namespace tierd::preload
