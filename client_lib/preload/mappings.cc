#include "client_lib/preload/mappings.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include <cstring>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/kept_mappings.h"
#include "client_lib/preload/mapped_frames.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/room.h"
#include "client_lib/preload/slow_path.h"
#include "client_lib/preload/writers.h"
#include "client_lib/src/added_memory.h"
#include "client_lib/src/cached_file.h"
#include "client_lib/src/file_limit.h"
#include "client_lib/src/finish.h"
#include "client_lib/src/hit.h"
#include "client_lib/src/shared_mapping.h"
#include "client_lib/src/thread_state.h"
#include "client_lib/src/views.h"

namespace tierd::preload {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLeastFrame =
    64 << 10;  // from here on the daemon aligns frames of files of one chunk to pages
constexpr std::uint64_t kLargestCopy = 4 << 20;   // of a file whose frame cannot be mapped
constexpr std::uint64_t kSmallCopy = 256 << 10;   // what is copied without asking how much of it is wanted

constexpr std::uint64_t Up(std::uint64_t n) { return (n + kPage - 1) / kPage * kPage; }

bool Failed(long address) { return address < 0 && address > -4096; }

// A file in memory, written once, then mapped. Nobody can write to it behind the mapping: it is sealed, and its descriptor closed.
class MemoryFile {
 public:
  MemoryFile() : fd_(static_cast<int>(raw::Call(SYS_memfd_create, raw::Address("tierd-map"), MFD_CLOEXEC | MFD_ALLOW_SEALING))) {}
  ~MemoryFile() {
    if (fd_ >= 0) raw::Close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Not past a limit of file sizes.
  bool Append(const std::byte* data, std::uint64_t bytes) {
    while (bytes > 0) {
      const ssize_t put = fd_ < 0 ? -1 : client::WriteWithinLimit(fd_, data, bytes);
      if (put <= 0) return false;
      data += put;
      bytes -= static_cast<std::uint64_t>(put);
    }
    return fd_ >= 0;
  }
  bool Seal() {
    constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    return raw::Call(SYS_fcntl, fd_, F_ADD_SEALS, kSeals) == 0;
  }
  // At that address, in place of what is there.
  struct Place {
    char* address;
    std::uint64_t bytes;
    std::uint64_t offset = 0;
  };
  bool MapAt(const Place& place, int protection, int sharing) {
    return !Failed(raw::Call(SYS_mmap, raw::Address(place.address), static_cast<long>(place.bytes), protection, sharing | MAP_FIXED, fd_, static_cast<long>(place.offset)));
  }

 private:
  const int fd_;
};

// Of what is shown of the file.
std::uint64_t EndOf(const Description& d, const MapRequest& request) {
  const std::uint64_t end = request.offset + Up(request.length);
  return end < d.size() ? end : d.size();
}

// Puts one mapping together; what it leased is in `frames`.
class Builder {
 public:
  Builder(Description& d, const MapRequest& request, MappedFrames& frames) : d_(d), request_(request), frames_(frames) {}

  void* Build() {
    frames_.is_private = sharing() == MAP_PRIVATE;
    frames_.protection = request_.protection;
    frames_.offset = request_.offset;
    frames_.facts = d_.facts;
    std::strcpy(frames_.path, d_.path);
    if (MayShow()) {
      if (Show()) return base_;
      Undo();
    }
    if (d_.whole && MayCopy() && Reserve() && Copy()) return base_;
    Undo();
    return nullptr;
  }
  // Where in the arena it begins; null: it is a copy.
  const std::byte* first() const { return frames_.count == 0 ? nullptr : shown_[0].data; }

 private:
  int sharing() const { return request_.flags & MAP_TYPE; }
  std::uint64_t End() const { return EndOf(d_, request_); }
  bool Reserve() {
    const long place = raw::Call(SYS_mmap, raw::Address(request_.address), static_cast<long>(Up(request_.length)), PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (Failed(place)) return false;
    SetBase(static_cast<std::uint64_t>(place));
    return true;
  }
  void SetBase(std::uint64_t place) {
    base_ = reinterpret_cast<char*>(place);
    frames_.address = place - first_skipped_;
    for (std::uint32_t i = 0; i < frames_.count; ++i) {
      shown_[i].place = place;
      place += shown_[i].bytes;
    }
  }

  void Undo() {
    if (base_ != nullptr)
      raw::Call(SYS_munmap, raw::Address(base_), static_cast<long>(Up(request_.length)));
    base_ = nullptr;
    GiveFramesBack(frames_);
  }

  // Frames are mapped shared, from a descriptor that is open for reading: what the program may
  // write to needs memory of its own.
  bool MayShow() const {
    if ((request_.protection & PROT_WRITE) != 0) return false;
    if (!d_.whole) return true;
    return d_.size() >= kLeastFrame &&
           reinterpret_cast<std::uintptr_t>(d_.piece.data) % kPage == 0 && LeavesRoomForOpens();
  }
  // Mappings of small files may be many, and stay: they take half of the pin cap, so that
  // descriptors have the other half.
  bool LeavesRoomForOpens() const {
    const client::Session* const session = process.client->session();
    return session == nullptr ||
           session->page->leased_bytes.load(std::memory_order_relaxed) + d_.size() <=
               session->pin_cap_bytes / 2;
  }

  // A copy goes to the file's end, which mremap may grow the mapping to. For a small window into a
  // larger file that is too much.
  std::uint64_t CopyBytes() const { return d_.size() - request_.offset; }
  bool MayCopy() {
    const std::uint64_t wanted = End() - request_.offset, bytes = CopyBytes();
    if (bytes > kLargestCopy || (bytes > kSmallCopy && wanted < bytes / 4)) return false;
    return client::TakeAdded(*process.client, client::Added::kMaps, bytes,
                             client::AddedUse::kOptional, frames_.added);
  }
  bool Copy() {
    const std::uint64_t wanted = End() - request_.offset;
    MemoryFile file;
    if (!file.Append(d_.piece.data + request_.offset, CopyBytes()) || !file.Seal() ||
        !file.MapAt({base_, Up(wanted)}, request_.protection, sharing())) {
      client::CountAddedFailure();
      return false;
    }
    CountPieceRead(d_, wanted);
    return true;
  }

  bool Show() {
    if (StackIsSmall()) return false;
    const SlowPath slow;
    if (!slow.entered()) return false;
    const client::Call call(*process.client, d_.path, 0);
    if (!Lease(call) || !MayHaveTail() || !(TakeKept() || (Reserve() && MapFrames())) || !MapTail())
      return false;
    for (std::uint32_t i = 0; i < frames_.count; ++i) client::CountSlowPiece(call, frames_.pieces[i], shown_[i].bytes + (i + 1 == frames_.count ? tail_bytes_ : 0));
    return true;
  }

  // The frames, leased for as long as the mapping lives. The page that the file ends in is no part of what is shown of them.
  bool Lease(const client::Call& call) {
    for (std::uint64_t at = request_.offset; at < End();) {
      client::Piece piece;
      const std::byte* data = nullptr;
      std::size_t bytes = 0;
      if (frames_.count == MappedFrames::kMost) return false;
      const abi::Fallback reason = d_.whole
                                       ? PinWhole(call, at, End() - at, piece, &data, &bytes)
                                       : d_.file().Pin(call, at, End() - at, piece, &data, &bytes);
      if (reason != abi::Fallback::kNone || bytes == 0) return false;
      // The mapping begins in the middle of its first frame, perhaps: what is kept is what is shown.
      if (frames_.count == 0) first_skipped_ = static_cast<std::uint64_t>(data - piece.data);
      shown_[frames_.count] = {data, 0, bytes / kPage * kPage};
      frames_.pieces[frames_.count++] = piece;
      at += bytes;
      tail_bytes_ = bytes % kPage;
      if (reinterpret_cast<std::uintptr_t>(data) % kPage != 0 || (tail_bytes_ != 0 && at < End())) return false;
    }
    return true;
  }

  // A file of one chunk, under a lease of its own: the mapping outlives the descriptor, whose lease
  // never moves (HAZARDS 2.4).
  abi::Fallback PinWhole(const client::Call& call, std::uint64_t at, std::size_t count,
                         client::Piece& piece, const std::byte** data, std::size_t* bytes) {
    client::HitPlace place;
    client::FileFacts facts;
    if (!client::Hit<client::LeaseUse::kView>(*process.client, d_.path, piece, place, &facts)) {
      client::Cached cached;
      client::Wish wish;
      wish.use = client::LeaseUse::kView;
      client::FindCached(call, wish, cached);
      if (cached.outcome != client::Outcome::kPiece) {
        cached.piece.Free();
        return cached.reason != abi::Fallback::kNone ? cached.reason : abi::Fallback::kChanged;
      }
      piece = cached.piece;
      facts = cached.facts;
    }
    const bool same =
        facts.SameVersion(d_.facts) && facts.ino == d_.facts.ino && piece.bytes == d_.size();
    if (!same || !client::Account(*piece.session, piece.bytes)) {
      piece.Free();
      return same ? abi::Fallback::kPinCap : abi::Fallback::kChanged;
    }
    *data = piece.data + at;
    *bytes = piece.bytes - at < count ? static_cast<std::size_t>(piece.bytes - at) : count;
    return abi::Fallback::kNone;
  }

  // What the application has unmapped, if it shows just this.
  bool TakeKept() {
    const std::uint64_t place = request_.address == nullptr ? TakeKeptMapping(first(), Up(request_.length)) : 0;
    if (place == 0) return false;
    SetBase(place);
    if (ShowsExactly(shown_, frames_.count)) return request_.protection != PROT_NONE || Forbid(Up(request_.length));
    GiveUpMapping({place, place + Up(request_.length)}, first());
    base_ = nullptr;
    return false;
  }
  bool Forbid(std::uint64_t bytes) { return raw::Call(SYS_mprotect, raw::Address(base_), static_cast<long>(bytes), PROT_NONE) == 0; }

  bool MapFrames() {
    std::uint64_t mapped = 0;
    for (std::uint32_t i = 0; i < frames_.count; ++i) {
      const ShownFrame& frame = shown_[i];
      if (frame.bytes == 0) continue;
      const client::Piece& piece = frames_.pieces[i];
      if (piece.session->arena->IsHugetlb(piece.segment)) return false;
      const client::Again again = client::MapAgain(frame.data, frame.bytes, reinterpret_cast<void*>(frame.place));
      if (again == client::Again::kLost) base_ = nullptr;  // the reservation is given up: part of it may be another thread's by now
      if (again != client::Again::kMapped) return false;
      mapped += frame.bytes;
    }
    return request_.protection != PROT_NONE || Forbid(mapped);
  }

  // The page that the file ends in.
  bool MayHaveTail() {
    return tail_bytes_ == 0 || client::TakeAdded(*process.client, client::Added::kMaps, kPage,
                                                 client::AddedUse::kOptional, frames_.added);
  }
  bool MapTail() {
    if (tail_bytes_ == 0) return true;
    const ShownFrame& last = shown_[frames_.count - 1];
    MemoryFile tail;
    return tail.Append(last.data + last.bytes, tail_bytes_) && tail.Seal() &&
           tail.MapAt({reinterpret_cast<char*>(last.place + last.bytes), kPage}, request_.protection, sharing());
  }

  Description& d_;
  const MapRequest& request_;
  MappedFrames& frames_;
  char* base_ = nullptr;
  std::uint64_t first_skipped_ = 0;
  std::uint64_t tail_bytes_ = 0;
  ShownFrame shown_[MappedFrames::kMost];
};

// Whether the chunks that are to be shown can all be held, as far as that is known before the first of them is asked for.
bool CanBeHeld(Description& d, const MapRequest& request) {
  if (d.whole) return true;
  const std::uint64_t chunk_bytes = d.file().chunk_bytes(), first = request.offset / chunk_bytes;
  const std::uint64_t count = (EndOf(d, request) - 1) / chunk_bytes - first + 1;
  if (count > MappedFrames::kMost) return false;
  const client::Session* const session = process.client->session();
  if (session == nullptr || !session->serves()) return true;  // another is asked for then
  const std::uint64_t to_end = d.size() - first * chunk_bytes;
  return client::MayAccount(*session, to_end < count * chunk_bytes ? to_end : count * chunk_bytes, chunk_bytes);
}

// Whether ours can be what the caller wants: reading, where the kernel likes, within the file's pages.
bool Suits(const Description& d, const MapRequest& request) {
  const int sharing = request.flags & MAP_TYPE;
  if (sharing != MAP_SHARED && sharing != MAP_PRIVATE) return false;
  const bool writable_copy = d.whole && sharing == MAP_PRIVATE;
  if ((request.protection & ~(PROT_READ | (writable_copy ? PROT_WRITE : 0))) != 0) return false;
  if ((request.flags & ~(MAP_TYPE | MAP_POPULATE | MAP_NORESERVE)) != 0) return false;
  if (request.length == 0 || request.offset % kPage != 0 || request.offset >= d.size()) return false;
  return request.length <= Up(d.size()) - request.offset;  // pages behind the end would have to be SIGBUS
}

// The frames' bytes at [where.begin, where.end), whatever the pages there are protected by.
bool AppendFrames(const MappedFrames& frames, AddressRange where, MemoryFile& file) {
  std::uint64_t at = frames.address;
  for (std::uint32_t i = 0; i < frames.count; ++i) {
    const client::Piece& piece = frames.pieces[i];
    const std::uint64_t begin = where.begin > at ? where.begin : at;
    const std::uint64_t end = where.end < at + piece.bytes ? where.end : at + piece.bytes;
    if (begin < end && !file.Append(piece.data + (begin - at), end - begin)) return false;
    at += piece.bytes;
  }
  return true;
}

}  // namespace

void* MapCached(Description& d, const MapRequest& request) {
  if (!Suits(d, request) || !CanBeHeld(d, request)) return nullptr;
  MappedFrames* const frames = NewFrames();
  if (frames == nullptr) return nullptr;
  Builder builder(d, request, *frames);
  void* const made = builder.Build();
  if (made == nullptr) {
    DiscardFrames(*frames);
  } else {
    const auto begin = reinterpret_cast<std::uintptr_t>(made);
    PublishFrames(*frames, {begin, begin + Up(request.length)}, builder.first());
    std::atomic_thread_fence(std::memory_order_seq_cst);  // between the entry in the table and the look: whoever opens it for writing does it the other way round
    if (BeingWritten(d.facts.ino)) ReplaceFramesOf(d.facts.ino, -1);
  }
  if (made != nullptr) Count(counters.maps);
  return made;
}

namespace {

int SharingOf(const MappedFrames& frames) { return frames.is_private ? MAP_PRIVATE : MAP_SHARED; }

int OpenVersion(const MappedFrames& frames, const char* path) {
  const int source = WithReserve([&] { return OpenSourceFile(path); });
  if (source < 0 || VersionBehind(frames.facts, source) == SourceVersion::kOpened) return source;
  CloseOwnFile(source);
  return -ESTALE;
}

// By the path, or by `at`, a number of the same file (-1: none): a directory may have another name by now.
int OpenSourceOf(const MappedFrames& frames, int at) {
  const int source = OpenVersion(frames, frames.path);
  if (source >= 0 || at < 0) return source;
  char path[32];
  ::snprintf(path, sizeof path, "/proc/self/fd/%d", at);
  return OpenVersion(frames, path);
}

// All of it, by one opening of the file: the kernel takes neighbours for one mapping then, however they were cut meanwhile.
bool BecomesSource(MappedFrames& frames, int at = -1) {
  const int source = OpenSourceOf(frames, at);
  if (source < 0) return false;
  bool all = true;
  Remap(frames, frames.whole, nullptr, [&](AddressRange part) {
    const auto offset = static_cast<long>(frames.offset + (part.begin - frames.whole.begin));
    const bool mapped = !Failed(raw::Call(SYS_mmap, static_cast<long>(part.begin), static_cast<long>(part.end - part.begin), frames.protection,
                                          SharingOf(frames) | MAP_FIXED, source, offset));
    all = all && mapped;
    return mapped;
  });
  Count(SourceUse::kMmap);
  CloseOwnFile(source);
  return all;
}

void BecomesCopy(MappedFrames& frames, AddressRange where) {
  if (where.begin < frames.whole.begin) where.begin = frames.whole.begin;
  if (where.end > frames.whole.end) where.end = frames.whole.end;
  MappedFrames* const copy = NewFrames();
  if (copy == nullptr) return;
  MemoryFile file;
  const bool allowed =
      where.begin < where.end &&
      client::TakeAdded(*process.client, client::Added::kMaps, where.end - where.begin,
                        client::AddedUse::kNeeded, copy->added);
  if (allowed && AppendFrames(frames, where, file) && file.Seal()) {
    Remap(frames, where, copy, [&](AddressRange part) {
      const MemoryFile::Place place{reinterpret_cast<char*>(part.begin), part.end - part.begin, part.begin - where.begin};
      return file.MapAt(place, frames.protection, SharingOf(frames));
    });
  }
  copy->outstanding = 1;
  LeaveFrames(*copy);
}

// A file in memory may be used as it is; only it does not become the source's any more.
void Replace(MappedFrames& frames, AddressRange where) {
  if (BecomesSource(frames)) return;
  if (frames.is_file_copy) KeepAsSnapshot(frames);
  else BecomesCopy(frames, where);
}

}  // namespace

void ReplaceFrames(AddressRange where, FileCopies copies) {
  std::size_t at = 0;
  while (MappedFrames* const frames = NextFrames(where, &at, copies)) {
    Replace(*frames, where);
    LeaveFrames(*frames);
  }
}

void ReplaceProtectedFrames(AddressRange where, int protection) {
  std::size_t at = 0;
  while (MappedFrames* const frames = NextFrames(where, &at, FileCopies::kToo)) {
    const bool refused = !frames->is_private && (protection & PROT_WRITE) != 0;
    if (protection != frames->protection && !refused) Replace(*frames, where);
    LeaveFrames(*frames);
  }
}

void ReplaceFramesOf(std::uint64_t inode, int at) {
  if (!AnyMappings() || vfork_depth != 0) return;  // in a vfork child the table is the parent's
  std::size_t entry = 0;
  while (MappedFrames* const frames = NextFramesOf(inode, &entry)) {
    if (!BecomesSource(*frames, at)) {
      KeepAsSnapshot(*frames);
      Count(Conversion::kFailed);
    }
    LeaveFrames(*frames);
  }
}

void ReplaceFramesAt(int directory, const char* path) {
  if (vfork_depth != 0) return;
  const int fd = WithReserve([&] { return raw::Open(directory, path, O_PATH | O_CLOEXEC); });
  if (fd < 0) return;
  struct stat st;
  if (raw::Stat(fd, st) == 0 && S_ISREG(st.st_mode)) ReplaceFramesOf(st.st_ino, fd);
  raw::Close(fd);
}

}  // namespace tierd::preload
