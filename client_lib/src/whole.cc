#include "client_lib/src/whole.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "client_lib/src/copy.h"
#include "client_lib/src/file.h"
#include "client_lib/src/finish.h"
#include "client_lib/src/shared_mapping.h"
#include "client_lib/src/source_io.h"
#include "client_lib/src/views.h"

namespace tierd::client {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kMaxMappedChunks = 512;  // of one view: each is a lease slot and a mapping

// Reads on from where `*size` is to the end of the file: only files that lie about their size (0) get here with more to come.
int ReadToEnd(int fd, char** block, std::size_t* size) {
  std::size_t capacity = 0;
  for (;;) {
    if (*size == capacity) {
      capacity = capacity == 0 ? 4096 : capacity * 2;
      auto* const larger = static_cast<char*>(std::realloc(*block, capacity));
      if (larger == nullptr) return -ENOMEM;
      *block = larger;
    }
    const ssize_t got = ReadSource(fd, *block + *size, capacity - *size, static_cast<std::int64_t>(*size));
    if (got < 0) return static_cast<int>(got);
    if (got == 0) return 0;
    *size += static_cast<std::size_t>(got);
  }
}

int ReadWhole(int fd, std::uint64_t bytes, char** block, std::size_t* size) {
  *block = nullptr;
  *size = 0;
  if (bytes == 0) return ReadToEnd(fd, block, size);
  *block = static_cast<char*>(std::malloc(bytes));
  if (*block == nullptr) return -ENOMEM;
  while (*size < bytes) {
    const ssize_t got = ReadSource(fd, *block + *size, bytes - *size, static_cast<std::int64_t>(*size));
    if (got < 0) return static_cast<int>(got);
    if (got == 0) return 0;  // it has become shorter
    *size += static_cast<std::size_t>(got);
  }
  return 0;
}

int SourceView(const Call& call, abi::Fallback reason, tier_view& view) {
  if (!call.may_read_source()) return -ENODATA;
  tier_attr attr;
  const int fd = OpenSourceFile(call.path, attr);
  if (fd < 0) return fd;
  char* block;
  std::size_t size;
  const int error = ReadWhole(fd, attr.bytes, &block, &size);
  ::close(fd);
  if (error != 0 || size == 0) {
    std::free(block);
    if (error != 0) return error;
    EmptyView(abi::Tier::kBypass, view);
  } else {
    PrivateView(block, size, abi::Tier::kBypass, view);
  }
  CountSlowRead(call, abi::Tier::kBypass, size, reason);
  return 0;
}

int PieceView(const Call& call, Piece& piece, tier_view& view) {
  if ((call.flags & TIER_COPY) == 0 && Account(*piece.session, piece.bytes)) {
    LeasedView(piece, piece.data, static_cast<std::size_t>(piece.bytes), view);
    CountSlowPiece(call, piece, piece.bytes);
    return 0;
  }
  void* const block = std::malloc(piece.bytes);
  if (block != nullptr) CopyOut(block, piece.data, piece.bytes, piece.bytes);
  const bool revoked = piece.session->page->revoked.load(std::memory_order_acquire) != 0;
  piece.Free();
  if (block == nullptr) return -ENOMEM;
  if (revoked) {
    std::free(block);
    return SourceView(call, abi::Fallback::kRevoked, view);
  }
  PrivateView(block, piece.bytes, piece.tier, view);
  CountSlowPiece(call, piece, piece.bytes);
  return 0;
}

Again MapPiece(const Piece& piece, char* place) {
  if (reinterpret_cast<std::uintptr_t>(piece.data) % kPage != 0 || piece.session->arena->IsHugetlb(piece.segment)) return Again::kRefused;
  return MapAgain(piece.data, (piece.bytes + kPage - 1) / kPage * kPage, place);
}

// Into the reservation as it lies there: to replace it could leave a hole for a moment, where another thread's memory may come to lie.
bool CopyPiece(const Piece& piece, char* place) {
  if (::mprotect(place, piece.bytes, PROT_READ | PROT_WRITE) != 0) return false;
  CopyOut(place, piece.data, piece.bytes, piece.bytes);
  return piece.session->page->revoked.load(std::memory_order_acquire) == 0;  // HAZARDS 2.5
}

// All chunks side by side: mapped under their leases, or copied where a chunk is not page-aligned (a short tail), cannot be mapped so (hugetlb), or
// would go past the pin cap. Null when some chunk cannot be had from the cache.
MappedChunks* MapChunks(Call& call, File& file, abi::Tier* tier) {
  const std::uint32_t count = file.chunk_count();
  if (count > kMaxMappedChunks || file.chunk_bytes() % kPage != 0) return nullptr;
  auto* const chunks = static_cast<MappedChunks*>(std::calloc(1, sizeof(MappedChunks) + count * sizeof(MappedChunks::Held)));
  if (chunks == nullptr) return nullptr;
  chunks->bytes = (file.size() + kPage - 1) / kPage * kPage;
  chunks->data = ::mmap(nullptr, chunks->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (chunks->data == MAP_FAILED) {
    std::free(chunks);
    return nullptr;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Piece piece;
    const abi::Fallback reason = file.Chunk(call, i, LeaseUse::kView, false, piece);
    call.NoteChunk(reason);
    if (reason != abi::Fallback::kNone) break;
    if (piece.tier > *tier) *tier = piece.tier;
    auto* const place = static_cast<char*>(chunks->data) + i * file.chunk_bytes();
    Again mapped = Again::kRefused;
    if (Account(*piece.session, piece.bytes)) {
      mapped = MapPiece(piece, place);
      if (mapped == Again::kMapped) chunks->held[chunks->count++] = {piece.session, piece.lease, piece.epoch, piece.bytes};
      else if (piece.bytes >= piece.session->account_from) piece.session->page->leased_bytes.fetch_sub(piece.bytes, std::memory_order_relaxed);
    }
    if (mapped == Again::kLost) chunks->bytes = i * file.chunk_bytes();  // what lies before it is still ours
    if (mapped != Again::kMapped) {
      const bool copied = mapped == Again::kRefused && CopyPiece(piece, place);
      piece.Free();
      if (!copied) break;
    }
    if (i + 1 == count) return chunks;
  }
  tier_view discarded;
  MappedView(chunks, 0, *tier, discarded);
  ReleaseOther(discarded);
  return nullptr;
}

int ChunkedView(const Call& call, Cached& cached, tier_view& view) {
  File file(call.client, call.path, call.flags);
  file.Bind(cached);
  int error = 0;
  abi::Tier tier = file.attr().origin == TIER_FROM_RAM ? abi::Tier::kRam : abi::Tier::kSource;
  Call chunk_by_chunk = call;
  MappedChunks* const chunks = (call.flags & TIER_COPY) == 0 ? MapChunks(chunk_by_chunk, file, &tier) : nullptr;
  if (chunks != nullptr) {
    MappedView(chunks, file.size(), tier, view);
    CountSlowRead(call, tier, file.size(), abi::Fallback::kNone);
  } else if (void* const block = std::malloc(file.size()); block != nullptr) {
    const File::Done done = file.Read(chunk_by_chunk, block, file.size(), 0, false);
    if (done.bytes > 0 && done.error == 0 && !done.changed) {
      PrivateView(block, static_cast<std::size_t>(done.bytes), done.tier, view);
      CountSlowRead(call, done.tier, static_cast<std::uint64_t>(done.bytes), done.reason);
    } else {
      std::free(block);
      error = done.error != 0 && !done.changed ? done.error : SourceView(call, abi::Fallback::kChanged, view);
    }
  } else {
    error = -ENOMEM;
  }
  file.Close();
  return error;
}

ssize_t ReadFromSource(const Call& call, abi::Fallback reason, void* buffer, std::size_t count, std::uint64_t offset, std::uint64_t* file_size) {
  if (!call.may_read_source()) return -ENODATA;
  tier_attr attr;
  const int fd = OpenSourceFile(call.path, attr);
  if (fd < 0) return fd;
  const ssize_t got = ReadSource(fd, buffer, count, static_cast<std::int64_t>(offset), attr.bytes);
  ::close(fd);
  if (got < 0) return got;
  if (file_size != nullptr) *file_size = attr.bytes;
  CountSlowRead(call, abi::Tier::kBypass, static_cast<std::uint64_t>(got), reason);
  return got;
}

}  // namespace

int ViewOf(const Call& call, Cached& cached, tier_view& view) {
  switch (cached.outcome) {
    case Outcome::kPiece: return PieceView(call, cached.piece, view);
    case Outcome::kEmpty: {
      const abi::Tier tier = cached.asked ? abi::Tier::kSource : abi::Tier::kRam;
      EmptyView(tier, view);
      CountSlowRead(call, tier, 0, abi::Fallback::kNone);
      return 0;
    }
    case Outcome::kChunked: return ChunkedView(call, cached, view);
    case Outcome::kError: return cached.error;
    case Outcome::kFallback: return SourceView(call, cached.target.outside ? abi::Fallback::kNone : cached.reason, view);
    default: return SourceView(call, abi::Fallback::kNotRegular, view);
  }
}

int GetSlow(Client& client, const char* path, unsigned flags, tier_view& view) {
  const SlowPath slow;
  const Call call(client, path, flags);
  view = {};
  if (!slow.entered()) return SourceView(call, abi::Fallback::kOverload, view);
  Cached cached;
  Wish wish;
  wish.use = (flags & TIER_COPY) != 0 ? LeaseUse::kCall : LeaseUse::kView;
  FindCached(call, wish, cached);
  if (cached.outcome == Outcome::kFallback && cached.reason == abi::Fallback::kPinCap && wish.use == LeaseUse::kView) {
    // All lease slots for views are taken: a private copy under a lease of this call.
    Call copying = call;
    copying.flags |= TIER_COPY;
    wish.use = LeaseUse::kCall;
    FindCached(copying, wish, cached);
    return ViewOf(copying, cached, view);
  }
  return ViewOf(call, cached, view);
}

ssize_t ReadSlow(Client& client, const char* path, void* buffer, std::size_t count, std::uint64_t offset, std::uint64_t* file_size, unsigned flags) {
  const SlowPath slow;
  const Call call(client, path, flags);
  if (!slow.entered()) return ReadFromSource(call, abi::Fallback::kOverload, buffer, count, offset, file_size);
  Cached cached;
  Wish wish;
  wish.offset = offset;
  FindCached(call, wish, cached);
  switch (cached.outcome) {
    case Outcome::kPiece:
    case Outcome::kEmpty:
    case Outcome::kChunked: break;
    case Outcome::kError: return cached.error;
    case Outcome::kFallback: {
      const abi::Fallback reason = cached.target.outside ? abi::Fallback::kNone : cached.reason;
      return ReadFromSource(call, reason, buffer, count, offset, file_size);
    }
    default: return ReadFromSource(call, abi::Fallback::kNotRegular, buffer, count, offset, file_size);
  }
  const Piece piece = cached.piece;
  File file(client, path, flags);
  file.Bind(cached);
  const File::Done done = file.Read(call, buffer, count, offset, false);
  const bool revoked = piece.held() && piece.session->page->revoked.load(std::memory_order_acquire) != 0;  // HAZARDS 2.5
  if (file_size != nullptr) *file_size = file.size();
  file.Close();
  if (done.changed || revoked) {
    if (revoked) client.NoteDead(*piece.session, call.now_ns);
    return ReadFromSource(call, revoked ? abi::Fallback::kRevoked : abi::Fallback::kChanged, buffer, count, offset, file_size);
  }
  if (done.error != 0) return done.error;
  if (piece.held() && done.tier == piece.tier) CountSlowPiece(call, piece, static_cast<std::uint64_t>(done.bytes));
  else CountSlowRead(call, done.tier, static_cast<std::uint64_t>(done.bytes), done.reason);
  return done.bytes;
}

}  // namespace tierd::client
