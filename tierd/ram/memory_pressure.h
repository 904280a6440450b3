// How much memory the RAM tier may still take, asked of the kernel: MemAvailable and the limits of our memory cgroups (v1 and v2, every ancestor), so that
// tierd is never why a trainer is OOM-killed (C5, HAZARDS 2.8).
//
// Pure functions that read files: call on a worker. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

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

MemoryRoom ReadMemoryRoom(const MemoryRoots& roots);

// For how long the next look, due every second, may be left out: memory that others take at four times `floor_bytes` (what is left to them) a second
// is still seen before less than four floors are left. 0 near that; at most 9 s.
std::int64_t LooksToSkipNs(std::uint64_t room_bytes, std::uint64_t floor_bytes);

}  // namespace tierd::ram
