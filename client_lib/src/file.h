// A regular file bound to one version, for reading in pieces: what an open file of the cache is, and what a call on a large path uses while it lasts
// (HAZARDS 2.10).
//
// Bytes come from leased chunks, else from a descriptor of the source whose fstat is that version: two versions are never mixed.
// Thread rule: Open and Close by one thread; the rest by any number. The descriptor is opened at most once, behind an atomic.
#pragma once

#include <atomic>
#include <cstdint>

#include "client_lib/src/added_memory.h"
#include "client_lib/src/cached_file.h"
#include "client_lib/src/source_io.h"
#include "tier/tier.h"

namespace tierd::client {

class File {
 public:
  static constexpr std::uint32_t kMaxHeld = 16;  // chunks that an open file holds, so that it needs no descriptor

  File(Client& client, const char* path, unsigned flags) : client_(client), path_(path), flags_(flags) {}

  // From an answer of FindCached of kind kPiece, kEmpty or kChunked; takes its piece over.
  void Bind(Cached& cached);
  // For a file that stays open: holds all its chunks, or a descriptor of the source. 0, -errno, or 1: open the source, which has another version by now, or the
  // budget for copies (added_memory.h) is used up.
  int Keep(const Call& call);
  // Gives everything back that is held.
  void Close();

  const tier_attr& attr() const { return attr_; }
  std::uint64_t size() const { return attr_.bytes; }
  // The piece of a file of one chunk, null for others.
  const Piece* whole() const { return mode_ == Mode::kWhole && first_.session != nullptr ? &first_ : nullptr; }

  struct Done {
    ssize_t bytes = 0;          // or -errno
    int error = 0;              // -errno of what ended it early, maybe behind some bytes
    abi::Tier tier = abi::Tier::kRam;                 // slowest that bytes came from
    abi::Fallback reason = abi::Fallback::kNone;      // why the source was read, if it was
    bool changed = false;       // the source has another version by now: nothing of this call may be used
  };
  // Copies up to `count` bytes from `offset`. `any_age`: the file is open, its version stays right.
  Done Read(Call call, void* buffer, std::size_t count, std::uint64_t offset, bool any_age);
  // The same of an open file, from what is held or in shared memory alone: no lock, no question, no source; for signal handlers too. Fewer bytes than wanted, all of one
  // tier; none: the rest is for Read.
  Done ReadHere(void* buffer, std::size_t count, std::uint64_t offset);
  // The first bytes, if they are held or in shared memory. It counts as no reading.
  bool Peek(void* buffer, std::size_t count);
  // A counted view piece with the bytes at `offset`, or the reason why there is none (then Read may still serve them). `*data`, `*bytes`: cut at the
  // end of the chunk.
  abi::Fallback Pin(const Call& call, std::uint64_t offset, std::size_t count, Piece& piece, const std::byte** data, std::size_t* bytes);
  // Sets the descriptor up if there is none: 0, -errno, or 1 when the source has another version.
  int NeedDescriptor();
  // Looked at after each read from the descriptor: the file may have been written in place.
  bool DescriptorKeepsVersion() const;
  int descriptor() const { return fd_.load(std::memory_order_acquire); }
  // The chunk, looked up anew if the session has changed since the file was bound.
  // `part`: what is needed of it, which may be all that the piece has; 0 bytes: all.
  abi::Fallback Chunk(const Call& call, std::uint32_t chunk, LeaseUse use, bool any_age, Piece& piece, abi::FetchPart part = {});
  std::uint64_t chunk_bytes() const { return chunk_bytes_; }
  std::uint32_t chunk_count() const { return static_cast<std::uint32_t>((attr_.bytes + chunk_bytes_ - 1) / chunk_bytes_); }

 private:
  enum class Mode : std::uint8_t { kWhole, kChunked };
  bool HoldAll(const Call& call);
  // A chunk by the hit path's rules, under the lease of a call.
  bool ChunkHere(std::uint32_t chunk, Piece& piece);
  // The daemon hears of a chunk each time that the reading comes to it, however small the pieces are that it is read in.
  void NoteChunk(const Piece& piece, abi::Tier tier, std::uint32_t chunk);
  // Where the bytes at `offset` are held, or null.
  const Piece* Held(std::uint64_t offset) const;
  // What it took to bring the bytes of that chunk here: what it took at the open is for the first reading, which takes the answer with it (WasRead).
  abi::Tier TierOf(const Piece& piece, std::uint32_t chunk) const;
  void WasRead(std::uint32_t chunk);

  Client& client_;
  const char* path_;   // outlives the file
  unsigned flags_;
  Mode mode_ = Mode::kWhole;
  FileFacts facts_;
  abi::FileKey file_key_;    // of an alias' target, under the hash of instance_
  bool alias_ = false;
  std::uint8_t instance_[16] = {};
  tier_attr attr_{};
  std::uint64_t chunk_bytes_ = 0;
  Piece first_;        // chunk 0, or the whole file
  bool kept_ = false;  // first_ was counted as held
  void* copy_ = nullptr;  // of the whole file, when no more memory of the cache may be held
  AddedBytes added_{};    // for it
  Piece* held_ = nullptr;  // all chunks, malloc'ed
  std::atomic<int> fd_{-1};
  std::atomic<std::uint32_t> links_{0};  // to the file behind fd_ when that was opened
  std::atomic<std::uint32_t> last_chunk_{0xfffffffeu};  // for read-ahead
  std::atomic<abi::Tier> opened_from_{abi::Tier::kRam};  // chunk 0, or the whole file, until it is read
  std::atomic<std::uint32_t> noted_chunk_{0xffffffffu};  // the last one that is in the access ring
};

}  // namespace tierd::client
