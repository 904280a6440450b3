#include "client_lib/preload/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "client_lib/preload/changes.h"
#include "client_lib/preload/counters.h"
#include "client_lib/preload/links.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/root_names.h"
#include "client_lib/preload/takes_library.h"
#include "client_lib/src/process.h"

namespace tierd::preload {
namespace {

constexpr int kMost = 1000;

// Shared by processes; all zero when it is made. Values are stored: never renumber.
struct Table {
  std::atomic<std::uint32_t> marked;    // entries that are not 0
  std::atomic<std::uint32_t> overflow;  // 1: one found no room, and each wait doubts from then on
  std::atomic<std::int32_t> pid[kMost];
};
static_assert(sizeof(Table) == 8 + 4 * kMost && sizeof(Table) <= 4096);

constinit std::atomic<Table*> table{nullptr};
// Foreign children of this process that are being made.
constinit std::atomic<std::uint32_t> spawning{0};

bool IsMapped(long address) { return address > 0 || address < -4095; }

Table* MapFile(const char* path) {
  const int fd = raw::Open(AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return nullptr;
  struct stat st;
  const bool good = raw::Stat(fd, st) == 0 && S_ISREG(st.st_mode) && st.st_uid == static_cast<uid_t>(raw::Call(SYS_geteuid)) &&
                    st.st_size >= static_cast<off_t>(sizeof(Table));
  const long at = good ? raw::Call(SYS_mmap, 0, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : -EINVAL;
  raw::Close(fd);
  return IsMapped(at) ? reinterpret_cast<Table*>(at) : nullptr;
}

Table* MakeTable() {
  const client::KeepErrno keep;
  const char* const path = ::getenv("TIERD_CHILDREN");
  Table* made = path != nullptr && path[0] == '/' ? MapFile(path) : nullptr;
  if (made == nullptr) {
    const long at = raw::Call(SYS_mmap, 0, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!IsMapped(at)) return nullptr;
    made = reinterpret_cast<Table*>(at);
  }
  Table* none = nullptr;
  if (table.compare_exchange_strong(none, made, std::memory_order_acq_rel)) return made;
  raw::Call(SYS_munmap, raw::Address(made), sizeof(Table));  // another thread was first
  return none;
}

Table* Shared() {
  Table* const here = table.load(std::memory_order_acquire);
  return here != nullptr ? here : MakeTable();
}

bool IsGone(std::int32_t pid) { return raw::Call(SYS_kill, pid, 0) == -ESRCH; }

void Unmark(Table& shared, int at, std::int32_t pid) {
  if (shared.pid[at].compare_exchange_strong(pid, 0, std::memory_order_acq_rel)) shared.marked.fetch_sub(1, std::memory_order_acq_rel);
}

// Its place; -1: there is none, or it has one.
int Mark(pid_t pid) {
  Table* const shared = Shared();
  if (shared == nullptr) return -1;
  for (int i = 0; shared->marked.load(std::memory_order_acquire) != 0 && i < kMost; ++i) {
    if (shared->pid[i].load(std::memory_order_relaxed) == pid) return -1;
  }
  for (int i = 0; i < kMost; ++i) {
    std::int32_t none = 0;
    if (shared->pid[i].load(std::memory_order_relaxed) != 0 || !shared->pid[i].compare_exchange_strong(none, pid, std::memory_order_acq_rel)) continue;
    shared->marked.fetch_add(1, std::memory_order_acq_rel);
    return i;
  }
  shared->overflow.store(1, std::memory_order_release);
  return -1;
}

pid_t Self() { return static_cast<pid_t>(raw::Call(SYS_getpid)); }

// Each waiter tells by itself, also of one that another is telling of: it may not return before.
void Doubt() {
  Count(counters.doubts);
  DoubtLinks();
  DoubtRoots();
  TellDoubt();
}

}  // namespace

void ShareForeign() { (void)Shared(); }

Foreign::Foreign(IsForeign is) {
  if (is == IsForeign::kNo) return;
  self_ = Self();
  marked_ = Mark(self_);
}

Foreign::~Foreign() {
  if (marked_ >= 0) Unmark(*table.load(std::memory_order_acquire), marked_, self_);
}

Spawning::Spawning(bool takes_library) : foreign_(!takes_library) {
  if (foreign_) spawning.fetch_add(1, std::memory_order_acq_rel);
}

void Spawning::Made(pid_t child) {
  if (foreign_) (void)Mark(child);
}

Spawning::~Spawning() {
  if (foreign_) spawning.fetch_sub(1, std::memory_order_acq_rel);
}

void AfterShell() {
  if (!Active()) return;
  const client::KeepErrno keep;
  if (TakesLibrary(AT_FDCWD, "/bin/sh", environ)) return AfterWait(0);
  Count(counters.foreign_ends);
  Doubt();
}

void AfterWait(pid_t ended) {
  if (!Active()) return;
  Table* const shared = Shared();
  const bool unsure = spawning.load(std::memory_order_acquire) != 0;  // its child may not be marked yet
  if (shared == nullptr || (shared->marked.load(std::memory_order_acquire) == 0 && shared->overflow.load(std::memory_order_relaxed) == 0 && !unsure)) return;
  const client::KeepErrno keep;
  std::uint64_t found[(kMost + 63) / 64] = {};
  std::uint64_t ends = 0;
  for (int i = 0; i < kMost; ++i) {
    const std::int32_t pid = shared->pid[i].load(std::memory_order_acquire);
    if (pid == 0 || (pid != ended && !IsGone(pid))) continue;
    found[i / 64] |= std::uint64_t{1} << (i % 64);
    ++ends;
  }
  const bool all = unsure || ended == kNoneLeft || shared->overflow.load(std::memory_order_relaxed) != 0;
  if (ends == 0 && !all) return;
  client::AddOwn(counters.foreign_ends, ends);
  Doubt();
  for (int i = 0; i < kMost; ++i) {
    if ((found[i / 64] >> (i % 64) & 1) == 0) continue;
    const std::int32_t pid = shared->pid[i].load(std::memory_order_acquire);
    if (pid != 0 && (pid == ended || IsGone(pid))) Unmark(*shared, i, pid);
  }
}

}  // namespace tierd::preload
