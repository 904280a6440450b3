#include "client_lib/src/file.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "client_lib/src/accounting.h"
#include "client_lib/src/added_memory.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/copy.h"
#include "client_lib/src/hit.h"
#include "client_lib/src/views.h"

namespace tierd::client {

void File::Bind(Cached& cached) {
  const Target& target = cached.target;
  mode_ = cached.outcome == Outcome::kChunked ? Mode::kChunked : Mode::kWhole;
  facts_ = cached.facts;
  AttrFromFacts(facts_, target.source->dev, attr_);
  attr_.origin = cached.asked ? TIER_FROM_SOURCE : TIER_FROM_RAM;
  chunk_bytes_ = target.source->chunk_bytes;
  file_key_ = target.file_key;
  alias_ = target.is_alias();
  std::memcpy(instance_, target.session->arena->instance(), sizeof instance_);
  first_ = cached.piece;
  first_.tier = abi::Tier::kRam;  // where it is by now
  opened_from_.store(cached.piece.tier, std::memory_order_relaxed);
  cached.piece = {};
}

void File::Close() {
  if (kept_) GiveLeaseBack(*first_.session, first_.lease, first_.epoch, first_.bytes);
  else first_.Free();
  if (held_ != nullptr) {
    for (std::uint32_t chunk = 0; chunk < chunk_count(); ++chunk)
      GiveLeaseBack(*held_[chunk].session, held_[chunk].lease, held_[chunk].epoch, held_[chunk].bytes);
    std::free(held_);
  }
  std::free(copy_);
  GiveAdded(client_, added_);
  if (const int fd = descriptor(); fd >= 0) ::close(fd);
}

int File::NeedDescriptor() {
  if (descriptor() >= 0) return 0;
  tier_attr attr;
  const int fd = OpenSourceFile(path_, attr);
  if (fd < 0) return fd;
  if (!FactsFromAttr(attr).SameVersion(facts_)) {
    ::close(fd);
    return 1;
  }
  links_.store(attr.nlink, std::memory_order_relaxed);  // the same in every thread: they saw the same version
  int none = -1;
  if (!fd_.compare_exchange_strong(none, fd, std::memory_order_acq_rel)) ::close(fd);  // another thread was here first
  return 0;
}

bool File::DescriptorKeepsVersion() const {
  tier_attr attr;
  if (StatDescriptor(descriptor(), attr) != 0) return false;
  FileFacts now = FactsFromAttr(attr);
  // A name was added or taken away (unlink, replaced by rename): that moves the ctime, and leaves the bytes alone.
  if (attr.nlink != links_.load(std::memory_order_relaxed)) now.ctime_ns = facts_.ctime_ns;
  return now.SameVersion(facts_);
}

int File::Keep(const Call& call) {
  if (size() == 0) return 0;
  if (mode_ == Mode::kWhole) {
    kept_ = Account(*first_.session, first_.bytes);
    if (kept_) return 0;
    if (!TakeAdded(client_, Added::kHandles, first_.bytes, call.may_read_source() ? AddedUse::kOptional : AddedUse::kNeeded, added_)) return 1;
    copy_ = std::malloc(first_.bytes);
    if (copy_ == nullptr) return -ENOMEM;
    CopyOut(copy_, first_.data, first_.bytes, first_.bytes);
    first_.data = static_cast<const std::byte*>(copy_);
    first_.Free();
    return 0;
  }
  if (HoldAll(call)) return 0;
  first_.Free();
  // Without the source each read takes its chunk as it finds it, of this version or not at all.
  return call.may_read_source() ? NeedDescriptor() : 0;
}

// All chunks are in RAM and may be held: then no source is needed for as long as the file is open.
bool File::HoldAll(const Call& call) {
  const std::uint32_t count = chunk_count();
  if (count > kMaxHeld) return false;
  auto* const pieces = static_cast<Piece*>(std::calloc(count, sizeof(Piece)));
  if (pieces == nullptr) return false;
  Call look_only = call;
  look_only.flags |= TIER_NOWAIT;
  std::uint32_t held = 0;
  for (; held < count; ++held) {
    pieces[held] = {};
    if (Chunk(look_only, held, LeaseUse::kView, true, pieces[held]) != abi::Fallback::kNone) break;
    if (Account(*pieces[held].session, pieces[held].bytes)) continue;
    pieces[held].Free();
    break;
  }
  if (held == count) {
    first_.Free();
    first_ = {};
    held_ = pieces;
    return true;
  }
  for (std::uint32_t i = 0; i < held; ++i) GiveLeaseBack(*pieces[i].session, pieces[i].lease, pieces[i].epoch, pieces[i].bytes);
  std::free(pieces);
  return false;
}

abi::Tier File::TierOf(const Piece& piece, std::uint32_t chunk) const {
  const abi::Tier opened_from = chunk == 0 ? opened_from_.load(std::memory_order_relaxed) : abi::Tier::kRam;
  return piece.tier > opened_from ? piece.tier : opened_from;
}

void File::WasRead(std::uint32_t chunk) {
  if (chunk == 0) opened_from_.store(abi::Tier::kRam, std::memory_order_relaxed);
}

const Piece* File::Held(std::uint64_t offset) const {
  if (mode_ == Mode::kWhole) return &first_;
  if (held_ != nullptr) return &held_[offset / chunk_bytes_];
  if (first_.held() && offset < chunk_bytes_) return &first_;
  return nullptr;
}

abi::Fallback File::Chunk(const Call& call, std::uint32_t chunk, LeaseUse use, bool any_age, Piece& piece, abi::FetchPart part) {
  Target target;
  PathText text;
  if (const abi::Fallback reason = FindTarget(call, target, &text); reason != abi::Fallback::kNone) return reason;
  if (target.source->chunk_bytes != chunk_bytes_) return abi::Fallback::kChanged;  // a daemon that cuts files differently
  if (alias_) {
    // The key of what the link named was hashed with the secret of that instance.
    if (!target.session->arena->IsOf(instance_)) return abi::Fallback::kChanged;
    target.file_key = file_key_;
  }
  ChunkWish wish;
  wish.chunk = chunk;
  wish.use = use;
  wish.any_age = any_age;
  wish.part = part;
  // Who reads on comes to the begin of the next chunk; records here and there lie in neighbours by chance, too.
  const bool at_begin = part.begin < chunk_bytes_ / 16;
  wish.sequential = last_chunk_.exchange(chunk, std::memory_order_relaxed) + 1 == chunk && at_begin;
  return FindChunk(call, target, text, facts_, wish, piece);
}

bool File::ChunkHere(std::uint32_t chunk, Piece& piece) {
  HitPlace place;
  if (!FindHitPlace(client_, path_, place) || place.source->chunk_bytes != chunk_bytes_) return false;
  if (alias_ && !place.session->arena->IsOf(instance_)) return false;
  const LookUp look_up{*place.session, *place.index, place.now_ns, true, nullptr};
  if (LookUpChunk(look_up, alias_ ? file_key_ : place.key, chunk, facts_, LeaseUse::kCall, piece) != Look::kHit) return false;
  const std::uint64_t begin = std::uint64_t{chunk} * chunk_bytes_;
  if (piece.bytes == (size() - begin < chunk_bytes_ ? size() - begin : chunk_bytes_)) return true;
  piece.Free();
  return false;
}

void File::NoteChunk(const Piece& piece, abi::Tier tier, std::uint32_t chunk) {
  if (mode_ == Mode::kWhole || noted_chunk_.load(std::memory_order_relaxed) == chunk) return;
  noted_chunk_.store(chunk, std::memory_order_relaxed);
  if (piece.ordinal != 0xffffffffu && piece.session->serves()) AppendToRing(*piece.session->page, piece.ordinal, piece.generation, CoarseNs(), tier);
}

File::Done File::ReadHere(void* buffer, std::size_t count, std::uint64_t offset) {
  Done done;
  if (offset >= size()) return done;
  if (count > size() - offset) count = static_cast<std::size_t>(size() - offset);
  for (std::size_t copied = 0; copied < count;) {
    const std::uint64_t at = offset + copied;
    const std::uint64_t begin = mode_ == Mode::kWhole ? at : at % chunk_bytes_;
    const auto chunk = static_cast<std::uint32_t>(mode_ == Mode::kWhole ? 0 : at / chunk_bytes_);
    Piece piece;
    const Piece* bytes = Held(at);
    if (bytes == nullptr) {
      if (!ChunkHere(chunk, piece)) return done;
      bytes = &piece;
    }
    const abi::Tier tier = TierOf(*bytes, chunk);
    if (copied != 0 && tier != done.tier) {
      piece.Free();
      return done;
    }
    std::size_t part = count - copied;
    if (mode_ == Mode::kChunked && part > chunk_bytes_ - begin) part = static_cast<std::size_t>(chunk_bytes_ - begin);
    CopyOut(static_cast<char*>(buffer) + copied, bytes->data + begin, part, count);
    const bool revoked = piece.held() && piece.session->page->revoked.load(std::memory_order_acquire) != 0;  // HAZARDS 2.5
    if (!revoked) NoteChunk(*bytes, tier, chunk);
    piece.Free();
    if (revoked) return done;
    if (tier != abi::Tier::kRam) WasRead(chunk);
    done.tier = tier;
    last_chunk_.store(chunk, std::memory_order_relaxed);
    copied += part;
    done.bytes = static_cast<ssize_t>(copied);
  }
  return done;
}

bool File::Peek(void* buffer, std::size_t count) {
  Piece piece;
  const Piece* bytes = size() < count ? nullptr : Held(0);
  if (bytes == nullptr) {
    if (size() < count || !ChunkHere(0, piece)) return false;
    bytes = &piece;
  }
  std::memcpy(buffer, bytes->data, count);
  const bool revoked = piece.held() && piece.session->page->revoked.load(std::memory_order_acquire) != 0;  // HAZARDS 2.5
  piece.Free();
  return !revoked;
}

File::Done File::Read(Call call, void* buffer, std::size_t count, std::uint64_t offset, bool any_age) {
  Done done;
  if (offset >= size()) return done;
  if (count > size() - offset) count = static_cast<std::size_t>(size() - offset);
  for (std::size_t copied = 0; copied < count;) {
    const std::uint64_t at = offset + copied;
    const std::uint64_t begin = mode_ == Mode::kWhole ? at : at % chunk_bytes_;
    const auto chunk = static_cast<std::uint32_t>(mode_ == Mode::kWhole ? 0 : at / chunk_bytes_);
    Piece piece;
    const Piece* bytes = Held(at);
    abi::Fallback reason = abi::Fallback::kNone;
    std::size_t part = count - copied;
    if (mode_ == Mode::kChunked && part > chunk_bytes_ - begin) part = static_cast<std::size_t>(chunk_bytes_ - begin);
    if (bytes == nullptr) {
      reason = Chunk(call, chunk, LeaseUse::kCall, any_age, piece, {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(part)});
      call.NoteChunk(reason);
      bytes = &piece;
    }
    if (reason == abi::Fallback::kNone) {
      CopyOut(static_cast<char*>(buffer) + copied, bytes->data + (begin - bytes->begin), part, count);
      const abi::Tier tier = TierOf(*bytes, chunk);
      if (tier > done.tier) done.tier = tier;
      if (piece.held() && piece.session->page->revoked.load(std::memory_order_acquire) != 0) reason = abi::Fallback::kRevoked;  // HAZARDS 2.5
      if (reason == abi::Fallback::kNone) NoteChunk(*bytes, tier, chunk);
      if (reason == abi::Fallback::kNone && tier != abi::Tier::kRam) WasRead(chunk);
      piece.Free();
    }
    if (reason != abi::Fallback::kNone) {
      done.reason = reason;
      done.tier = abi::Tier::kBypass;
      const int error = call.may_read_source() ? NeedDescriptor() : -ENODATA;
      done.changed = error > 0;
      done.error = error < 0 ? error : 0;
      done.bytes = done.error;
      if (error != 0) return done;
      const ssize_t got = ReadSource(descriptor(), static_cast<char*>(buffer) + copied, part, static_cast<std::int64_t>(at), 0, &done.error);
      if (got >= 0 && !DescriptorKeepsVersion()) {
        done.changed = true;
        done.bytes = 0;
        return done;
      }
      if (got < static_cast<ssize_t>(part)) {  // an error, or an end where the size says there is none: what the source gives
        if (got < 0) done.error = static_cast<int>(got);
        done.bytes = got < 0 && copied == 0 ? got : static_cast<ssize_t>(copied) + (got > 0 ? got : 0);
        return done;
      }
    }
    copied += part;
    done.bytes = static_cast<ssize_t>(copied);
  }
  return done;
}

abi::Fallback File::Pin(const Call& call, std::uint64_t offset, std::size_t count, Piece& piece, const std::byte** data, std::size_t* bytes) {
  const auto chunk = static_cast<std::uint32_t>(mode_ == Mode::kWhole ? 0 : offset / chunk_bytes_);
  const std::uint64_t begin = mode_ == Mode::kWhole ? offset : offset % chunk_bytes_;
  if (mode_ == Mode::kWhole) {
    // A lease of its own, since the view may outlive the file; by the whole protocol: a lease copied from slot to slot could be overlooked by a scan
    // (HAZARDS 2.4).
    if (copy_ != nullptr || !first_.held()) return abi::Fallback::kPinCap;
    Target target;
    PathText text;
    if (const abi::Fallback reason = FindTarget(call, target, &text); reason != abi::Fallback::kNone) return reason;
    const LookUp look_up{*target.session, *target.session->index.load(std::memory_order_acquire), call.now_ns, true, nullptr};
    if (LookUpFile(look_up, alias_ ? file_key_ : target.path_key, LeaseUse::kView, piece, nullptr) != Look::kHit) return abi::Fallback::kNoFrame;
    if (piece.data != first_.data) {  // another version, or the frame has moved
      piece.Free();
      return abi::Fallback::kChanged;
    }
  } else {
    const std::uint64_t rest = std::min(size() - offset, chunk_bytes_ - begin);
    const abi::FetchPart part{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(std::min<std::uint64_t>(count, rest))};
    if (const abi::Fallback reason = Chunk(call, chunk, LeaseUse::kView, true, piece, part); reason != abi::Fallback::kNone) return reason;
  }
  if (!Account(*piece.session, piece.bytes)) {
    piece.Free();
    return abi::Fallback::kPinCap;
  }
  *data = piece.data + (begin - piece.begin);
  *bytes = static_cast<std::size_t>(std::min<std::uint64_t>(piece.begin + piece.bytes - begin, count));
  return abi::Fallback::kNone;
}

}  // namespace tierd::client
