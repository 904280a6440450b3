// The sources that the daemon accelerates, as this process sees them: which of them a path is below, and whether both mean the same directory.
//
// A table is made from one kSources message and never changes but for the answer of the namespace check. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "client_lib/abi/messages.h"
#include "client_lib/src/mounts_below.h"

namespace tierd::client {

struct Source {
  const char* root;          // NUL-terminated, without trailing '/'; "" for the root directory
  std::uint32_t root_bytes;
  std::uint32_t id;
  std::uint64_t dev;
  std::uint64_t ino;
  std::uint64_t chunk_bytes;
  abi::Staleness staleness;
  std::uint32_t ttl_ms;
  bool partly;               // TIERD_PREFIX lets only some of its paths through
  bool advice_only;          // it lets none through: what is invalidated there still has to be told
  // kPierced: it is the daemon's, but for what is mounted below it here.
  enum Namespace : std::uint8_t { kUnknown = 0, kSame = 1, kForeign = 2, kPierced = 3 };
  mutable std::atomic<std::uint8_t> where;
  mutable MountsBelow mounts;

  // Hits need nothing but the slot: no prefix to look at, no stat of the source, and the directory is known to be the daemon's.
  bool Plain() const { return where.load(std::memory_order_acquire) == kSame && !partly && staleness != abi::Staleness::kOpen; }
};

// What TIERD_PREFIX allows; empty: everything.
struct Prefixes {
  static constexpr std::size_t kMax = 16;
  const char* text[kMax] = {};
  std::uint32_t bytes[kMax] = {};
  std::size_t count = 0;

  bool Allow(const char* path, std::size_t path_bytes) const;
  // Whether paths below `directory` may be allowed at all, and whether they all are.
  bool Touches(const char* directory, std::size_t directory_bytes) const;
  bool Covers(const char* directory, std::size_t directory_bytes) const { return Allow(directory, directory_bytes); }
};

class SourceTable {
 public:
  static constexpr std::uint32_t kMaxSources = 256;

  // From the entries of a checked kSources message; null when it does not hold together or there is no memory.
  static SourceTable* Create(const std::byte* entries, std::size_t bytes, std::uint32_t count, const Prefixes& prefixes);

  // The source with the longest root that `path` (canonical) is, or is below; null if none. The rest behind the root and its '/' is in `relative`.
  const Source* Match(const char* path, std::size_t bytes, const char** relative, std::size_t* relative_bytes) const {
    for (std::uint32_t i = 0; i < count_; ++i) {
      const Source& source = sources_[i];
      if (bytes < source.root_bytes || std::memcmp(path, source.root, source.root_bytes) != 0) continue;
      if (bytes == source.root_bytes) {
        *relative = path + bytes;
        *relative_bytes = 0;
        return &source;
      }
      if (path[source.root_bytes] != '/') continue;
      *relative = path + source.root_bytes + 1;
      *relative_bytes = bytes - source.root_bytes - 1;
      return &source;
    }
    return nullptr;
  }

  // What the roots lead to may have changed: asked again at the next use of each.
  void DoubtNamespaces() const;
  // Something was mounted, or is mounted no more: the roots that it concerns are doubted. Reads the mount table alone.
  void DoubtMounts() const;

  std::uint32_t count() const { return count_; }
  const Source& at(std::uint32_t i) const { return sources_[i]; }
  // How long a slot may stay usable without the daemon; -1: for ever.
  std::int64_t LongestValidityNs() const;

  SourceTable* next = nullptr;  // chain of its owner

 private:
  std::uint32_t count_ = 0;
  Source* sources_ = nullptr;  // longest root first
};

// Finds out whether this process has the daemon's directory under the source's path, and what is mounted below it (HAZARDS 2.14): `where` from then on. One statx, without
// asking the file server, and a look at the mounts, at the first use of each source.
Source::Namespace FindNamespace(const Source& source);

}  // namespace tierd::client
