// What was said to have changed lately (tier_invalidate, the control plane). An answer of the source that was asked for before then proves
// nothing about those paths: read-your-writes holds also against reads and stats that were under way.
//
// Loop thread only. It remembers the last kRemembered by path; beyond them only when the newest forgotten one was, for all paths.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "tierd/engine/catalogue.h"

namespace tierd::engine {

class InvalidationLog {
 public:
  static constexpr std::size_t kRemembered = 64;

  void Add(std::uint16_t source, std::string_view path, bool recursive, std::int64_t now_ns) {
    Entry& entry = entries_[next_++ % kRemembered];
    forgotten_ns_ = entry.at_ns;
    entry = {now_ns, source, recursive, std::string(path)};
    newest_ns_ = now_ns;
  }

  // True if an answer asked for at `sent_ns` may be older than an invalidation of `path`.
  bool Covers(std::uint16_t source, std::string_view path, std::int64_t sent_ns) const {
    return AnySince(source, sent_ns, [path](const Entry& entry) { return entry.recursive ? AtOrBelow(path, entry.path) : path == entry.path; });
  }
  // The same of where `path` led to: each name on the way may be the link that was changed.
  bool CoversWay(std::uint16_t source, std::string_view path, std::int64_t sent_ns) const {
    return AnySince(source, sent_ns, [path](const Entry& entry) { return AtOrBelow(path, entry.path); });
  }
  // False: no answer asked for at `sent_ns` is in doubt, whatever its path.
  bool Any(std::int64_t sent_ns) const { return sent_ns <= newest_ns_; }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
  struct Entry {
    std::int64_t at_ns = kNever;
    std::uint16_t source = 0;
    bool recursive = false;
    std::string path;
  };

  template <typename Concerns>
  bool AnySince(std::uint16_t source, std::int64_t sent_ns, Concerns&& concerns) const {
    if (sent_ns > newest_ns_) return false;
    if (sent_ns <= forgotten_ns_) return true;
    for (const Entry& entry : entries_) {
      if (entry.at_ns >= sent_ns && entry.source == source && concerns(entry)) return true;
    }
    return false;
  }

  std::array<Entry, kRemembered> entries_;
  std::size_t next_ = 0;
  std::int64_t newest_ns_ = kNever;
  std::int64_t forgotten_ns_ = kNever;
};

}  // namespace tierd::engine
