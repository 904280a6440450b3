// How much memory the RAM tier may still take, asked of the kernel: MemAvailable and the limits of our memory cgroups (v1 and v2, every ancestor), so that
// tierd is never why a trainer is OOM-killed (C5, HAZARDS 2.8).
//
// Reads files: call on a worker. A gauge is one thread's at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "tierd/base/unique_fd.h"

namespace tierd::ram {

struct MemoryRoots {
  std::string proc = "/proc";             // tests point both at trees of theirs
  std::string cgroup = "/sys/fs/cgroup";
};

struct MemoryRoom {
  std::uint64_t available_bytes = 0;      // MemAvailable of the node
  std::uint64_t cgroup_limit_bytes = 0;   // tightest limit, 0 = none
  std::uint64_t cgroup_used_bytes = 0;    // of that cgroup, without its clean page cache
  // What can be taken now before the node or a cgroup runs out: min(available, limit - used) over all levels; 0 when unknown.
  std::uint64_t room_bytes = 0;
  bool known = false;                     // MemAvailable could be read
  std::string bound_by;                   // "node" or the cgroup's directory: for `status`
};

struct CgroupFiles;

// For who looks again and again: keeps the files open, some four for each level of cgroups, unless the process may have few descriptors (F15: they are for clients).
// Which cgroups are ours is asked each time.
class MemoryGauge {
 public:
  explicit MemoryGauge(MemoryRoots roots = {}) : roots_(std::move(roots)) {}
  MemoryRoom Read();

 private:
  std::string ReadSmallFile(const std::string& path);
  void LookAt(const std::string& directory, const CgroupFiles& names, MemoryRoom& room);
  void LookUpwards(const std::string& mount, std::string path, const CgroupFiles& names, MemoryRoom& room);

  const MemoryRoots roots_;
  std::string groups_;                    // text of /proc/self/cgroup at the last look
  std::map<std::string, UniqueFd> open_;  // by path
  bool keeps_ = true;
};

// Once.
inline MemoryRoom ReadMemoryRoom(const MemoryRoots& roots) { return MemoryGauge(roots).Read(); }

// For how long the next look, due every second, may be left out: memory that others take at four times `floor_bytes` (what is left to them) a second
// is still seen before less than four floors are left, although an idle daemon may begin a look two seconds late. 0 near that; at most 9 s.
std::int64_t LooksToSkipNs(std::uint64_t room_bytes, std::uint64_t floor_bytes);

// In how long they have taken half of `room_bytes`: where nothing else makes it look, a daemon looks again by then and is in time. 100 ms to 10 s; 10 s
// where `floor_bytes` is 0: nothing is kept for them.
std::int64_t HalfTakenNs(std::uint64_t room_bytes, std::uint64_t floor_bytes);

}  // namespace tierd::ram
