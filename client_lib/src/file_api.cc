// tier_open ... tier_close.
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "client_lib/src/clock.h"
#include "client_lib/src/file.h"
#include "client_lib/src/finish.h"
#include "client_lib/src/process.h"
#include "client_lib/src/source_io.h"
#include "client_lib/src/views.h"

// What every open file is. Most are one of the two below; which one does not change while it is open.
struct tier_file {
  tierd::client::Client& client;
  const bool cached;
};

namespace tierd::client {
namespace {

// The source itself: a descriptor and what it said when it was opened, as the kernel wrote it there. Without a daemon this is all that an open adds, so
// nothing is set that is set anyway, nor put into another form before somebody asks for it.
struct SourceFile : tier_file {
  SourceFile(Client& the_client, abi::Fallback why) : tier_file{the_client, false}, reason(why) {}
  int fd;
  const abi::Fallback reason;
  struct stat st;
};

// Leased bytes of one version.
struct CachedFile : tier_file {
  unsigned flags;
  const char* path;  // as it was opened; behind the struct
  File file;
};

SourceFile& SourceOf(tier_file& file) { return static_cast<SourceFile&>(file); }
CachedFile& CachedOf(tier_file& file) { return static_cast<CachedFile&>(file); }

static_assert(sizeof(SourceFile) <= RoomForOne::kBytes);

inline void* MemoryFor(Client& client) {
  if (void* const room = client.room_for_one().Take(); room != nullptr) [[likely]] return room;
  return std::malloc(sizeof(SourceFile));
}

inline void GiveMemoryBack(Client& client, void* memory) {
  if (!client.room_for_one().GiveBack(memory)) [[unlikely]] std::free(memory);
}

inline int OpenAtSource(Client& client, const char* path, abi::Fallback reason, tier_file** opened) {
  void* const memory = MemoryFor(client);
  if (memory == nullptr) return -ENOMEM;
  auto* const file = new (memory) SourceFile(client, reason);
  file->fd = OpenSourceFile(path, file->st);
  if (file->fd < 0) [[unlikely]] {
    const int error = file->fd;
    GiveMemoryBack(client, memory);
    return error;
  }
  *opened = file;
  return 0;
}

// From the cache: 0 or -errno; 1: the source has to serve, because of `reason`.
int OpenCached(Client& client, const char* path, unsigned flags, abi::Fallback* reason, tier_file** opened) {
  const SlowPath slow;
  const Call call(client, path, flags);
  *reason = abi::Fallback::kOverload;
  if (!slow.entered()) return 1;
  Cached cached;
  Wish wish;
  wish.use = LeaseUse::kView;
  FindCached(call, wish, cached);
  switch (cached.outcome) {
    case Outcome::kPiece:
    case Outcome::kEmpty:
    case Outcome::kChunked: break;
    case Outcome::kError: return cached.error;
    case Outcome::kFallback: *reason = cached.target.outside ? abi::Fallback::kNone : cached.reason; return 1;
    default: *reason = abi::Fallback::kNotRegular; return 1;
  }
  const std::size_t bytes = std::strlen(path) + 1;
  void* const memory = std::malloc(sizeof(CachedFile) + bytes);
  if (memory == nullptr) {
    cached.piece.Free();
    return -ENOMEM;
  }
  char* const copy = static_cast<char*>(memory) + sizeof(CachedFile);
  std::memcpy(copy, path, bytes);
  auto* const file = new (memory) CachedFile{{client, true}, flags, copy, {client, copy, flags}};
  file->file.Bind(cached);
  const int error = file->file.Keep(call);
  if (error == 0) {
    *opened = file;
    return 0;
  }
  *reason = file->file.whole() != nullptr ? abi::Fallback::kPinCap : abi::Fallback::kChanged;
  file->file.Close();
  std::free(memory);
  return error;
}

void Count(const Call& call, const File& file, const File::Done& done) {
  const auto bytes = static_cast<std::uint64_t>(done.bytes);
  if (const Piece* piece = file.whole(); piece != nullptr && done.tier != abi::Tier::kBypass) {
    Piece seen;
    seen.session = piece->session;
    seen.ordinal = piece->ordinal;
    seen.generation = piece->generation;
    seen.tier = done.tier;
    CountSlowPiece(call, seen, bytes);
    return;
  }
  CountSlowRead(call, done.tier, bytes, done.reason);
}

// No lock is taken on the way, so there is no need to hold off signals and cancellation.
__attribute__((noinline)) ssize_t ReadTimed(const SourceFile& file, void* buffer, std::size_t count, std::int64_t offset) {
  const std::int64_t start_ns = !file.client.alone() || IsAloneRead(file.client, file.reason) || SampleThisHit() ? PreciseNs() : 0;
  const ssize_t got = ReadSource(file.fd, buffer, count, offset, static_cast<std::uint64_t>(file.st.st_size));
  if (got >= 0) CountSourceRead(file.client, static_cast<std::uint64_t>(got), file.reason, start_ns);
  return got;
}

inline ssize_t ReadAtSource(const SourceFile& file, void* buffer, std::size_t count, std::int64_t offset) {
  if (!IsAloneRead(file.client, file.reason) || file.client.alone_reads().Due()) [[unlikely]] return ReadTimed(file, buffer, count, offset);
  const ssize_t got = ReadSource(file.fd, buffer, count, offset, static_cast<std::uint64_t>(file.st.st_size));
  if (got >= 0) [[likely]] file.client.alone_reads().Count(static_cast<std::uint64_t>(got));
  return got;
}

__attribute__((noinline)) ssize_t ReadCached(CachedFile& file, void* buffer, std::size_t count, std::int64_t offset, abi::Tier& tier) {
  const SlowPath slow;
  Call call(file.client, file.path, file.flags);
  if (!slow.entered()) call.flags |= kNeverAsk;
  const File::Done done = file.file.Read(call, buffer, count, static_cast<std::uint64_t>(offset), true);
  if (done.changed) return -ESTALE;  // neither the cache nor the source has the version any more: what a network file system says then
  if (done.error != 0) return done.error;
  Count(call, file.file, done);
  tier = done.tier;
  return done.bytes;
}

// `tier`: where the bytes came from, if there are any.
inline ssize_t ReadOpen(tier_file& file, void* buffer, std::size_t count, std::int64_t offset, abi::Tier& tier) {
  if (file.cached) [[unlikely]] return ReadCached(CachedOf(file), buffer, count, offset, tier);
  tier = abi::Tier::kBypass;
  return ReadAtSource(SourceOf(file), buffer, count, offset);
}

// A view of leased bytes; false: only a copy can be given.
bool PinLeased(CachedFile& file, std::uint64_t offset, std::size_t count, tier_view& view) {
  const SlowPath slow;
  Call call(file.client, file.path, file.flags);
  if (!slow.entered()) call.flags |= kNeverAsk;
  Piece piece;
  const std::byte* data;
  std::size_t bytes;
  if (file.file.Pin(call, offset, count, piece, &data, &bytes) != abi::Fallback::kNone) return false;
  LeasedView(piece, data, bytes, view);
  CountSlowPiece(call, piece, bytes);
  return true;
}

tier_attr AttrOf(const tier_file& file) {
  if (file.cached) return static_cast<const CachedFile&>(file).file.attr();
  tier_attr attr;
  AttrFromStat(static_cast<const SourceFile&>(file).st, attr);
  return attr;
}

}  // namespace
}  // namespace tierd::client

using namespace tierd::client;
namespace abi = tierd::abi;

int tier_open(tier_client* client, const char* path, tier_file** file, unsigned flags) noexcept {
  if (path == nullptr || file == nullptr || (flags & ~(TIER_CACHED | TIER_NOWAIT)) != 0) return -EINVAL;
  const KeepErrno keep;
  *file = nullptr;
  Client& c = ClientOf(client);
  abi::Fallback why = c.WithoutDaemon();
  if (why == abi::Fallback::kNone) [[unlikely]] {
    const int outcome = OpenCached(c, path, flags, &why, file);
    if (outcome <= 0) return outcome;
  }
  if ((flags & (TIER_CACHED | TIER_NOWAIT)) != 0) [[unlikely]] return -ENODATA;
  return OpenAtSource(c, path, why, file);
}

void tier_close(tier_file* file) noexcept {
  if (file == nullptr) return;
  const KeepErrno keep;
  if (file->cached) [[unlikely]] {
    CachedOf(*file).file.Close();
    return std::free(file);
  }
  ::close(SourceOf(*file).fd);
  GiveMemoryBack(file->client, file);
}

int tier_fstat(tier_file* file, tier_attr* attr) noexcept {
  if (file == nullptr) return -EINVAL;
  const KeepErrno keep;
  return GiveAttr(AttrOf(*file), attr);
}

ssize_t tier_file_pread(tier_file* file, void* buffer, size_t count, int64_t offset) noexcept {
  if (file == nullptr || (buffer == nullptr && count != 0) || offset < 0) return -EINVAL;
  const KeepErrno keep;
  abi::Tier tier;
  return ReadOpen(*file, buffer, count, offset, tier);
}

int tier_file_pin(tier_file* file, int64_t offset, size_t count, tier_view* view) noexcept {
  if (view != nullptr) *view = {};
  if (file == nullptr || view == nullptr || offset < 0) return -EINVAL;
  const KeepErrno keep;
  const auto at = static_cast<std::uint64_t>(offset);
  const std::uint64_t size = AttrOf(*file).bytes;
  if (count == 0 || at >= size) {
    EmptyView(abi::Tier::kRam, *view);
    return 0;
  }
  if (file->cached && PinLeased(CachedOf(*file), at, count, *view)) return 0;
  constexpr std::size_t kLongestCopy = 4 << 20;
  std::size_t wanted = count < kLongestCopy ? count : kLongestCopy;
  if (wanted > size - at) wanted = static_cast<std::size_t>(size - at);
  void* const block = std::malloc(wanted);
  if (block == nullptr) return -ENOMEM;
  abi::Tier tier;
  const ssize_t got = ReadOpen(*file, block, wanted, offset, tier);
  if (got <= 0) {
    std::free(block);
    if (got == 0) EmptyView(abi::Tier::kBypass, *view);
    return static_cast<int>(got);
  }
  PrivateView(block, static_cast<std::size_t>(got), tier, *view);
  return 0;
}
