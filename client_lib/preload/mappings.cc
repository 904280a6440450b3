#include "client_lib/preload/mappings.h"

#include <sys/mman.h>

#include <cstring>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/src/finish.h"
#include "client_lib/src/thread_state.h"
#include "client_lib/src/views.h"

namespace tierd::preload {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLargestCopy = 4 << 20;   // of a file whose frame cannot be mapped
constexpr std::size_t kMappings = 256;
constexpr std::uint32_t kPieces = 64;             // chunks of one mapping

constexpr std::uint64_t Up(std::uint64_t n) { return (n + kPage - 1) / kPage * kPage; }

enum class Use : std::uint32_t { kFree = 0, kBeingMade = 1, kUsed = 2, kForGood = 3 };

struct Mapping {
  std::atomic<Use> use;
  std::atomic<std::uint64_t> begin;  // what is left of it
  std::atomic<std::uint64_t> end;
  bool is_private;
  std::uint32_t count;
  client::Piece pieces[kPieces];
};

Mapping mappings[kMappings];
constinit std::atomic<std::uint32_t> mapping_count{0};

bool Failed(long address) { return address < 0 && address > -4096; }

void GiveBack(Mapping& mapping) {
  for (std::uint32_t i = 0; i < mapping.count; ++i) {
    const client::Piece& piece = mapping.pieces[i];
    if (piece.held()) client::GiveLeaseBack(*piece.session, piece.lease, piece.epoch, piece.bytes);
  }
  mapping.count = 0;
}

// Puts one mapping together; what it leased is in `mapping_`.
class Builder {
 public:
  Builder(Description& d, const MapRequest& request, Mapping& mapping) : d_(d), request_(request), mapping_(mapping) {
    mapping_.count = 0;
    mapping_.is_private = (request.flags & MAP_PRIVATE) != 0;
  }

  void* Build() {
    const long place = raw::Call(SYS_mmap, raw::Address(request_.address), static_cast<long>(Up(request_.length)), PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (Failed(place)) return nullptr;
    base_ = reinterpret_cast<char*>(place);
    if (d_.whole ? Copy(request_.offset, End()) : Chunks()) return base_;
    raw::Call(SYS_munmap, place, static_cast<long>(Up(request_.length)));
    GiveBack(mapping_);
    return nullptr;
  }

 private:
  std::uint64_t End() const {
    const std::uint64_t end = request_.offset + Up(request_.length);
    return end < d_.size() ? end : d_.size();
  }
  char* PlaceOf(std::uint64_t offset) const { return base_ + (offset - request_.offset); }

  // [begin, end) of the file as private memory; begin is a page's.
  bool Copy(std::uint64_t begin, std::uint64_t end) {
    if (end - begin > kLargestCopy) return false;
    const std::size_t bytes = Up(end - begin);
    const long place = raw::Call(SYS_mmap, raw::Address(PlaceOf(begin)), static_cast<long>(bytes), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (Failed(place)) return false;
    if (ReadCached(d_, reinterpret_cast<void*>(place), end - begin, begin) != static_cast<ssize_t>(end - begin)) return false;
    return raw::Call(SYS_mprotect, place, static_cast<long>(bytes), request_.protection) == 0;
  }

  bool Chunks() {
    const client::SlowPath slow;
    if (!slow.entered()) return false;
    const client::Call call(*process.client, d_.path, 0);
    for (std::uint64_t at = request_.offset; at < End();) {
      client::Piece piece;
      const std::byte* data = nullptr;
      std::size_t bytes = 0;
      if (mapping_.count == kPieces) return false;
      const abi::Fallback reason = d_.file().Pin(call, at, End() - at, piece, &data, &bytes);
      if (reason != abi::Fallback::kNone || bytes == 0) return false;
      mapping_.pieces[mapping_.count++] = piece;
      client::CountSlowPiece(call, piece, bytes);
      if (!MapFrame(data, at, bytes)) return false;
      at += bytes;
    }
    return true;
  }

  bool MapFrame(const std::byte* data, std::uint64_t at, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(data) % kPage != 0) return false;
    const std::size_t whole_pages = bytes / kPage * kPage;
    if (whole_pages > 0) {
      const long moved = raw::Call(SYS_mremap, raw::Address(data), 0, static_cast<long>(whole_pages), MREMAP_MAYMOVE | MREMAP_FIXED,
                                   raw::Address(PlaceOf(at)));
      if (Failed(moved)) return false;
      if (request_.protection == PROT_NONE) raw::Call(SYS_mprotect, moved, static_cast<long>(whole_pages), PROT_NONE);
    }
    if (bytes == whole_pages) return true;
    const long tail = raw::Call(SYS_mmap, raw::Address(PlaceOf(at + whole_pages)), kPage, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (Failed(tail)) return false;
    std::memcpy(reinterpret_cast<void*>(tail), data + whole_pages, bytes - whole_pages);
    return raw::Call(SYS_mprotect, tail, kPage, request_.protection) == 0;
  }

  Description& d_;
  const MapRequest& request_;
  Mapping& mapping_;
  char* base_ = nullptr;
};

Mapping* TakeMapping() {
  for (Mapping& mapping : mappings) {
    Use free = Use::kFree;
    if (mapping.use.load(std::memory_order_relaxed) == Use::kFree && mapping.use.compare_exchange_strong(free, Use::kBeingMade, std::memory_order_acq_rel))
      return &mapping;
  }
  return nullptr;
}

// Whether ours can be what the caller wants: reading, where the kernel likes, within the file's pages.
bool Suits(const Description& d, const MapRequest& request) {
  const bool writable_copy = d.whole && (request.flags & MAP_PRIVATE) != 0;
  if ((request.protection & ~(PROT_READ | (writable_copy ? PROT_WRITE : 0))) != 0) return false;
  if ((request.flags & ~(MAP_SHARED | MAP_PRIVATE | MAP_POPULATE | MAP_NORESERVE)) != 0) return false;
  if (request.length == 0 || request.offset % kPage != 0 || request.offset >= d.size()) return false;
  return request.length <= Up(d.size()) - request.offset;  // pages behind the end would have to be SIGBUS
}

}  // namespace

void* MapCached(Description& d, const MapRequest& request) {
  if (!Suits(d, request)) return nullptr;
  Mapping* const mapping = TakeMapping();
  if (mapping == nullptr) return nullptr;
  void* const made = Builder(d, request, *mapping).Build();
  if (made == nullptr || mapping->count == 0) {  // nothing, or a copy that needs nobody
    mapping->use.store(Use::kFree, std::memory_order_release);
  } else {
    const auto begin = reinterpret_cast<std::uintptr_t>(made);
    mapping->begin.store(begin, std::memory_order_relaxed);
    mapping->end.store(begin + Up(request.length), std::memory_order_relaxed);
    mapping_count.fetch_add(1, std::memory_order_acq_rel);
    mapping->use.store(Use::kUsed, std::memory_order_release);
  }
  if (made != nullptr) Count(counters.maps);
  return made;
}

bool AnyMappings() { return mapping_count.load(std::memory_order_acquire) != 0; }

void NoteUnmapped(const void* address, std::size_t length) {
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  const std::uint64_t to = from + Up(length);
  for (Mapping& mapping : mappings) {
    if (mapping.use.load(std::memory_order_acquire) != Use::kUsed) continue;
    const std::uint64_t begin = mapping.begin.load(std::memory_order_relaxed);
    const std::uint64_t end = mapping.end.load(std::memory_order_relaxed);
    if (to <= begin || from >= end) continue;
    if (from > begin && to < end) {  // a hole: who unmaps the rest, and when, is not followed
      Use used = Use::kUsed;
      mapping.use.compare_exchange_strong(used, Use::kForGood, std::memory_order_acq_rel);
      continue;
    }
    if (from > begin) {
      mapping.end.store(from, std::memory_order_relaxed);
      continue;
    }
    if (to < end) {
      mapping.begin.store(to, std::memory_order_relaxed);
      continue;
    }
    Use used = Use::kUsed;
    if (!mapping.use.compare_exchange_strong(used, Use::kBeingMade, std::memory_order_acq_rel)) continue;
    GiveBack(mapping);
    mapping_count.fetch_sub(1, std::memory_order_acq_rel);
    mapping.use.store(Use::kFree, std::memory_order_release);
  }
}

void NoteMoved(const void* address, std::size_t length) {
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  for (Mapping& mapping : mappings) {
    if (mapping.use.load(std::memory_order_acquire) != Use::kUsed) continue;
    if (from + length <= mapping.begin.load(std::memory_order_relaxed) || from >= mapping.end.load(std::memory_order_relaxed)) continue;
    Use used = Use::kUsed;
    mapping.use.compare_exchange_strong(used, Use::kForGood, std::memory_order_acq_rel);
  }
}

bool MakeWritable(void* address, std::size_t length, int protection) {
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  for (const Mapping& mapping : mappings) {
    const Use use = mapping.use.load(std::memory_order_acquire);
    if ((use != Use::kUsed && use != Use::kForGood) || !mapping.is_private) continue;
    if (from < mapping.begin.load(std::memory_order_relaxed) || from + length > mapping.end.load(std::memory_order_relaxed)) continue;
    const long copy = raw::Call(SYS_mmap, 0, static_cast<long>(Up(length)), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (Failed(copy)) return false;
    std::memcpy(reinterpret_cast<void*>(copy), address, Up(length));
    raw::Call(SYS_mprotect, copy, static_cast<long>(Up(length)), protection);
    const auto bytes = static_cast<long>(Up(length));
    return !Failed(raw::Call(SYS_mremap, copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, raw::Address(address)));
  }
  return false;
}

}  // namespace tierd::preload
