// tier_open ... tier_close.
#include <errno.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "client_lib/src/clock.h"
#include "client_lib/src/file.h"
#include "client_lib/src/finish.h"
#include "client_lib/src/process.h"
#include "client_lib/src/views.h"

struct tier_file {
  tierd::client::File file;
  tierd::client::Client& client;
  unsigned flags;
  char* path;  // as it was opened; behind the struct
};

namespace tierd::client {
namespace {

// Binds and keeps: 0 or -errno.
int OpenFile(Client& client, const char* path, unsigned flags, File& file) {
  if (const abi::Fallback why = client.WithoutDaemon(CoarseNs()); why != abi::Fallback::kNone)
    return (flags & (TIER_NOWAIT | TIER_CACHED)) == 0 ? file.BindToSource(why) : -ENODATA;
  const SlowPath slow;
  const bool entered = slow.entered();
  const Call call(client, path, flags);
  abi::Fallback reason = abi::Fallback::kOverload;
  if (entered) {
    Cached cached;
    Wish wish;
    wish.use = LeaseUse::kView;
    FindCached(call, wish, cached);
    switch (cached.outcome) {
      case Outcome::kPiece:
      case Outcome::kEmpty:
      case Outcome::kChunked: {
        file.Bind(cached);
        const int error = file.Keep(call);
        if (error <= 0) return error;
        file.LetGo();
        reason = abi::Fallback::kChanged;
        break;
      }
      case Outcome::kError: return cached.error;
      case Outcome::kFallback: reason = cached.target.outside ? abi::Fallback::kNone : cached.reason; break;
      default: reason = abi::Fallback::kNotRegular;
    }
  }
  return call.may_read_source() ? file.BindToSource(reason) : -ENODATA;
}

void Count(const Call& call, const File& file, const File::Done& done) {
  const auto bytes = static_cast<std::uint64_t>(done.bytes);
  if (const Piece* piece = file.whole(); piece != nullptr && done.tier != abi::Tier::kBypass) {
    Piece seen = *piece;
    seen.tier = abi::Tier::kRam;  // where it came from counted at the first read of these bytes
    CountSlowPiece(call, seen, bytes);
    return;
  }
  CountSlowRead(call, done.tier, bytes, done.reason);
}

// No lock is taken on the way, so there is no need to hold off signals and cancellation.
ssize_t ReadAtSource(tier_file& file, void* buffer, std::size_t count, std::int64_t offset) {
  const std::int64_t start_ns = file.client.session() != nullptr || SampleThisHit() ? PreciseNs() : 0;
  const ssize_t got = ReadSource(file.file.descriptor(), buffer, count, offset);
  if (got >= 0) CountSourceRead(file.client, static_cast<std::uint64_t>(got), file.file.source_reason(), start_ns);
  return got;
}

ssize_t ReadOpen(tier_file& file, void* buffer, std::size_t count, std::int64_t offset) {
  if (file.file.from_source()) return ReadAtSource(file, buffer, count, offset);
  const SlowPath slow;
  Call call(file.client, file.path, file.flags);
  if (!slow.entered()) call.flags |= TIER_NOWAIT;
  const File::Done done = file.file.Read(call, buffer, count, static_cast<std::uint64_t>(offset), true);
  if (done.changed) return -ESTALE;  // neither the cache nor the source has the version any more: what a network file system says then
  if (done.bytes >= 0) Count(call, file.file, done);
  return done.bytes;
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
  const std::size_t bytes = std::strlen(path) + 1;
  void* const memory = std::malloc(sizeof(tier_file) + bytes);
  if (memory == nullptr) return -ENOMEM;
  char* const copy = static_cast<char*>(memory) + sizeof(tier_file);
  std::memcpy(copy, path, bytes);
  auto* const opened = new (memory) tier_file{{c, copy, flags}, c, flags, copy};
  const int error = OpenFile(c, copy, flags, opened->file);
  if (error != 0) {
    opened->file.Close();
    std::free(memory);
    return error;
  }
  *file = opened;
  return 0;
}

void tier_close(tier_file* file) noexcept {
  if (file == nullptr) return;
  const KeepErrno keep;
  file->file.Close();
  std::free(file);
}

int tier_fstat(tier_file* file, tier_attr* attr) noexcept {
  if (file == nullptr) return -EINVAL;
  const KeepErrno keep;
  return GiveAttr(file->file.attr(), attr);
}

ssize_t tier_file_pread(tier_file* file, void* buffer, size_t count, int64_t offset) noexcept {
  if (file == nullptr || (buffer == nullptr && count != 0) || offset < 0) return -EINVAL;
  const KeepErrno keep;
  return ReadOpen(*file, buffer, count, offset);
}

int tier_file_pin(tier_file* file, int64_t offset, size_t count, tier_view* view) noexcept {
  if (view != nullptr) *view = {};
  if (file == nullptr || view == nullptr || offset < 0) return -EINVAL;
  const KeepErrno keep;
  const auto at = static_cast<std::uint64_t>(offset);
  if (count == 0 || at >= file->file.size()) {
    EmptyView(abi::Tier::kRam, *view);
    return 0;
  }
  {
    const SlowPath slow;
    Call call(file->client, file->path, file->flags);
    if (!slow.entered()) call.flags |= TIER_NOWAIT;
    Piece piece;
    const std::byte* data;
    std::size_t bytes;
    if (file->file.Pin(call, at, count, piece, &data, &bytes) == abi::Fallback::kNone) {
      LeasedView(piece, data, bytes, *view);
      CountSlowPiece(call, piece, bytes);
      return 0;
    }
  }
  constexpr std::size_t kLongestCopy = 4 << 20;
  std::size_t wanted = count < kLongestCopy ? count : kLongestCopy;
  if (wanted > file->file.size() - at) wanted = static_cast<std::size_t>(file->file.size() - at);
  void* const block = std::malloc(wanted);
  if (block == nullptr) return -ENOMEM;
  const ssize_t got = ReadOpen(*file, block, wanted, offset);
  if (got <= 0) {
    std::free(block);
    if (got == 0) EmptyView(abi::Tier::kBypass, *view);
    return static_cast<int>(got);
  }
  PrivateView(block, static_cast<std::size_t>(got), file->file.from_source() ? abi::Tier::kBypass : abi::Tier::kRam, *view);
  return 0;
}
