// Which directories and files were walked, stats and all, and when: what a listing or a sum of the catalogue below them may be called complete by. To forget one costs a
// walk, so the number is bounded: what others ask about time and again is not kept for ever.
//
// Owner: SourceUnit. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace tierd::engine {

class WalkedTrees {
 public:
  static constexpr std::size_t kMost = 1024;  // some 150 bytes each

  // A walk of all that is at or below `path` (relative, "" for all) ended at `now_ns`. What was noted below it is no longer needed.
  void Note(const std::string& path, std::int64_t now_ns);
  // Whether one of `path` or of what is above it ended later than `since_ns`.
  bool Covers(std::string_view path, std::int64_t since_ns) const;
  std::size_t size() const { return ended_ns_.size(); }

 private:
  void ForgetOlderHalf();

  std::map<std::string, std::int64_t, std::less<>> ended_ns_;
};

}  // namespace tierd::engine
