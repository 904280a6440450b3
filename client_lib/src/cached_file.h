// Finds the bytes or the facts of a path in the cache: shared memory first, then the daemon. What cannot be had so is a fallback with its reason.
// Slow path; any thread. Counts nothing: a call of the application may need several of these.
#pragma once

#include <cstdint>

#include "client_lib/src/ask.h"
#include "client_lib/src/lookup.h"
#include "client_lib/src/target.h"

namespace tierd::client {

enum class Outcome : std::uint8_t {
  kPiece,     // a file of one chunk: `piece` is all of it
  kEmpty,     // a file of 0 bytes
  kChunked,   // a file of several chunks: `facts` is its version; `piece`, if held, is its chunk 0
  kKnown,     // facts of a regular file (asked for without bytes)
  kOther,     // facts of something else
  kFallback,  // read the source, because of `reason`
  kError,     // the source says `error` (-errno)
};

struct Cached {
  Outcome outcome = Outcome::kFallback;
  abi::Fallback reason = abi::Fallback::kNone;
  int error = 0;
  bool asked = false;  // the daemon was asked
  FileFacts facts;
  Piece piece;
  Target target;
  PathText text;
};

struct Wish {
  LeaseUse use = LeaseUse::kCall;
  bool bytes = true;         // false: facts are enough
  bool follow = true;        // facts of what a link names
  std::uint64_t offset = 0;  // where the caller will read first
};

void FindCached(const Call& call, const Wish& wish, Cached& cached);

struct ChunkWish {
  std::uint32_t chunk = 0;
  LeaseUse use = LeaseUse::kCall;
  bool any_age = false;      // of an open file: it stays with its version
  bool sequential = false;   // the reader comes from the chunk before
  abi::FetchPart part{};     // what is needed of the chunk; 0 bytes: all
};

// One chunk of the version `facts` of a chunked file, or the part of it that is needed. kNone: `piece` holds it. `target` was found with `text`.
abi::Fallback FindChunk(const Call& call, Target& target, PathText& text, const FileFacts& facts, const ChunkWish& wish, Piece& piece);

// The listing of a directory as bytes under a view lease. kNone: `piece` holds it, without a lease when the directory is empty.
abi::Fallback FindListing(const Call& call, Target& target, PathText& text, Piece& piece, FileFacts* facts);

}  // namespace tierd::client
