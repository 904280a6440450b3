#include "client_lib/preload/kept_mappings.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/spin_lock.h"
#include "client_lib/src/added_memory.h"

namespace tierd::preload {
namespace {

// linux/fs.h has it since 6.11.
struct MapQuery {
  std::uint64_t size = sizeof(MapQuery);
  std::uint64_t flags = 0;  // the mapping that covers the address
  std::uint64_t address = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t access = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t inode = 0;
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint32_t name_bytes = 0;
  std::uint32_t build_id_bytes = 0;
  std::uint64_t name = 0;
  std::uint64_t build_id = 0;
};
static_assert(sizeof(MapQuery) == 104);
constexpr unsigned kMapQuery = 0xc0686611;       // _IOWR('f', 17, struct procmap_query)
constexpr std::uint64_t kReadableShared = 1 | 8;  // and neither writable nor executable

class Maps {
 public:
  Maps() : fd_(raw::Open(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~Maps() {
    if (fd_ >= 0) raw::Close(fd_);
  }
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;
  bool Find(std::uint64_t address, MapQuery& found) const {
    found = {};
    found.address = address;
    return fd_ >= 0 && raw::Call(SYS_ioctl, fd_, kMapQuery, raw::Address(&found)) == 0;
  }

 private:
  const int fd_;
};

struct Kept {
  AddressRange where;
  const std::byte* first;  // null: free
  client::AddedBytes added;
};
// What a kept mapping takes beside the frames: 8 bytes of page table for each page, and a last page
// of its own.
constexpr std::uint64_t AddedBy(std::uint64_t bytes) { return bytes / 512 + 4096; }

constexpr std::uint64_t kLeast = 1 << 20;  // smaller ones are mapped as fast as they are looked at
constexpr std::uint64_t kMost = 1 << 30;   // of all together
constexpr std::size_t kMappings = 16;

Kept table[kMappings];
std::uint64_t kept_bytes = 0;
std::size_t next_victim = 0;
constinit std::atomic<std::uint32_t> lock_word{0};
constinit std::atomic<std::uint32_t> count{0};
constinit std::atomic<bool> keeps{false};

// Under the lock.
Kept Remove(Kept& kept) {
  const Kept removed = kept;
  client::GiveAdded(*process.client, kept.added);
  kept.first = nullptr;
  kept_bytes -= removed.where.end - removed.where.begin;
  count.fetch_sub(1, std::memory_order_relaxed);
  return removed;
}

// Only if it still shows what it did: else the addresses are somebody else's by now.
void Unmap(const Kept& kept) {
  const Maps maps;
  MapQuery here, there;
  if (!maps.Find(kept.where.begin, here) || !maps.Find(reinterpret_cast<std::uintptr_t>(kept.first), there)) return;
  if (here.inode != there.inode || here.major != there.major || here.minor != there.minor) return;
  raw::Call(SYS_munmap, static_cast<long>(kept.where.begin), static_cast<long>(kept.where.end - kept.where.begin));
}

// Makes room under the lock; what has to go is in `victims`.
std::uint32_t MakeRoom(std::uint64_t bytes, Kept (&victims)[kMappings]) {
  std::uint32_t gone = 0;
  while (count.load(std::memory_order_relaxed) == kMappings || kept_bytes + bytes > kMost) {
    Kept& victim = table[next_victim++ % kMappings];
    if (victim.first != nullptr) victims[gone++] = Remove(victim);
  }
  return gone;
}

template <typename Which>
void Drop(Which which) {
  if (count.load(std::memory_order_acquire) == 0) return;
  Kept victims[kMappings];
  std::uint32_t gone = 0;
  {
    const SpinLock lock(lock_word);
    for (Kept& kept : table) {
      if (kept.first != nullptr && which(kept)) victims[gone++] = Remove(kept);
    }
  }
  for (std::uint32_t i = 0; i < gone; ++i) Unmap(victims[i]);
}

}  // namespace

void StartKeepingMappings() {
  rlimit space{};
  const Maps maps;
  MapQuery found;
  keeps = raw::Call(SYS_prlimit64, 0, RLIMIT_AS, 0, raw::Address(&space)) == 0 && space.rlim_cur == RLIM_INFINITY &&
          maps.Find(reinterpret_cast<std::uintptr_t>(&table), found);
}

void StopKeepingMappings() {
  keeps.store(false, std::memory_order_relaxed);
  DropKeptMappings();
}

bool KeepMapping(AddressRange where, const std::byte* first) {
  const std::uint64_t bytes = where.end - where.begin;
  if (!keeps.load(std::memory_order_relaxed) || bytes < kLeast || bytes > kMost / 2) return false;
  const auto begin = static_cast<long>(where.begin), length = static_cast<long>(bytes);
  // What the application may have asked for its addresses does not hold for the next mapping.
  for (const int usual : {MADV_NORMAL, MADV_DOFORK, MADV_DODUMP}) {
    if (raw::Call(SYS_madvise, begin, length, usual) != 0) return false;
  }
  constexpr int kGuardRemove = 103;  // of Linux 6.13, of files 6.15: pages that were made to fault
  const long unguarded = raw::Call(SYS_madvise, begin, length, kGuardRemove);
  if ((unguarded != 0 && unguarded != -EINVAL) || raw::Call(SYS_munlock, begin, length) != 0) return false;
  client::AddedBytes added;
  if (!client::TakeAdded(*process.client, client::Added::kKeptMappings, AddedBy(bytes),
                         client::AddedUse::kOptional, added))
    return false;
  Kept victims[kMappings];
  std::uint32_t gone;
  {
    const SpinLock lock(lock_word);
    gone = MakeRoom(bytes, victims);
    for (Kept& kept : table) {
      if (kept.first != nullptr) continue;
      kept = {where, first, added};
      kept_bytes += bytes;
      count.fetch_add(1, std::memory_order_relaxed);
      break;
    }
  }
  for (std::uint32_t i = 0; i < gone; ++i) Unmap(victims[i]);
  return true;
}

std::uint64_t TakeKeptMapping(const std::byte* first, std::uint64_t bytes) {
  if (count.load(std::memory_order_acquire) == 0) return 0;
  const SpinLock lock(lock_word);
  for (Kept& kept : table) {
    if (kept.first == first && kept.where.end - kept.where.begin == bytes) return Remove(kept).where.begin;
  }
  return 0;
}

void GiveUpMapping(AddressRange where, const std::byte* first) { Unmap({where, first, {}}); }

// One question of the kernel is a system call: what it says of a mapping holds for all frames in it.
bool ShowsExactly(const ShownFrame* frames, std::uint32_t frame_count) {
  const Maps maps;
  MapQuery here, there;
  const auto covers = [&maps](MapQuery& query, std::uint64_t address) { return (query.begin <= address && address < query.end) || maps.Find(address, query); };
  for (std::uint32_t i = 0; i < frame_count; ++i) {
    const auto data = reinterpret_cast<std::uintptr_t>(frames[i].data);
    for (std::uint64_t done = 0; done < frames[i].bytes;) {
      if (!covers(here, frames[i].place + done) || !covers(there, data + done)) return false;
      const std::uint64_t offset = frames[i].place + done - here.begin + here.offset;
      if (here.inode == 0 || here.inode != there.inode || here.major != there.major || here.minor != there.minor) return false;
      if (offset != data + done - there.begin + there.offset || here.access != kReadableShared) return false;
      const std::uint64_t more = here.end - (frames[i].place + done), same = there.end - (data + done);
      done += more < same ? more : same;
    }
  }
  return true;
}

void ForgetKeptMappings(AddressRange where) {
  Drop([&](const Kept& kept) { return kept.where.begin < where.end && where.begin < kept.where.end; });
}

void DropKeptMappings() {
  Drop([](const Kept&) { return true; });
}

}  // namespace tierd::preload
