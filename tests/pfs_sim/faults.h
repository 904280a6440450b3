// Rules that break requests: which operation, on which path, which of them, how.
//
// A rule sees the requests that match `op` and `path`, numbers them from 1 and fires on number n when
// n >= nth, (n - nth) is a multiple of `every`, and it has fired fewer than `count` times.
// Thread rule: guarded by the file system's mutex.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/pfs_sim/ops.h"
#include "tests/pfs_sim/reply.h"

namespace pfs_sim {

enum class FaultKind : uint8_t { kErrno, kHang, kShort, kFlip, kStaleAttr, kDelay };

struct FaultRule {
  uint64_t id = 0;
  std::optional<Op> op;  // nothing: every costed operation (for stale_attr: lookup and getattr)
  std::string path = "*";  // fnmatch(3) pattern without FNM_PATHNAME: '*' also matches '/'
  uint64_t nth = 1;
  uint64_t every = 1;
  uint64_t count = kUnlimited;
  FaultKind kind = FaultKind::kErrno;
  int error = 0;                           // kErrno
  uint64_t bit = ReadWork::kMiddle;        // kFlip: bit number in the file
  uint64_t bytes = ReadWork::kMiddle;      // kShort: bytes given
  uint64_t delay_us = 0;                   // kDelay: added to the latency
  static constexpr uint64_t kUnlimited = ~uint64_t{0};

  // Owned by FaultTable.
  uint64_t seen = 0;
  uint64_t fired = 0;
};

// "key=value" words of a control command. Values cannot hold spaces; '?' matches one in a pattern.
struct KeyValue {
  std::string_view key;
  std::string_view value;
};

// Parses the words after `fault add`. On failure returns nothing and sets *why to one sentence.
std::optional<FaultRule> ParseFaultRule(const std::vector<KeyValue>& words, std::string* why);

// "EIO", "ESTALE", ... or a number; nothing when unknown.
std::optional<int> ErrnoFromName(std::string_view name);
std::optional<uint64_t> ParseNumber(std::string_view text);
bool GlobMatches(const std::string& pattern, const std::string& path);

class FaultTable {
 public:
  uint64_t Add(FaultRule rule);
  bool Remove(uint64_t id);  // false: no such rule
  void Clear() { rules_.clear(); }
  bool empty() const { return rules_.empty(); }
  const std::vector<FaultRule>& rules() const { return rules_; }

  // The rule that fires on this request, the oldest first; counts it. Valid until the next change.
  const FaultRule* Match(Op op, const std::string& path);

 private:
  std::vector<FaultRule> rules_;
  uint64_t next_id_ = 1;
};

}  // namespace pfs_sim
