#include "tierd/ram/memory_pressure.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace tierd::ram {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;
constexpr rlim_t kFewDescriptors = 256;

bool FewDescriptors() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < kFewDescriptors;
}

// The number behind `name` at the start of a line: "MemAvailable:   24289380 kB", "inactive_file 4096".
std::optional<std::uint64_t> Field(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.size() > name.size() && line.substr(0, name.size()) == name && (line[name.size()] == ' ' || line[name.size()] == ':')) {
      return std::strtoull(std::string(line.substr(name.size() + 1)).c_str(), nullptr, 10);
    }
    at = end + 1;
  }
  return std::nullopt;
}

// Of a file with one number; "max" and v1's 2^63 are no limit.
std::optional<std::uint64_t> Number(const std::string& text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  return std::strtoull(text.c_str(), nullptr, 10);
}

constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

// A line of /proc/self/cgroup: "4:cpu,memory:/a/b" (v1), "0::/a/b" (v2).
struct Group {
  std::string controllers;  // ",cpu,memory,"
  std::string path;
  bool has_memory_v1() const { return controllers.find(",memory,") != std::string::npos; }
  bool is_v2() const { return controllers == ",,"; }
};

std::vector<Group> ParseGroups(const std::string& text) {
  std::vector<Group> groups;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || second + 1 == line.size() || line[second + 1] != '/') continue;
    groups.push_back({"," + line.substr(first + 1, second - first - 1) + ",", line.substr(second + 1)});
  }
  return groups;
}

}  // namespace

struct CgroupFiles {
  const char* limit;
  const char* soft_limit;  // throttles before the hard one; null: none
  const char* used;
  const char* cache;  // field of memory.stat: clean or at least reclaimable page cache
};
constexpr CgroupFiles kV1{"/memory.limit_in_bytes", nullptr, "/memory.usage_in_bytes", "total_inactive_file"};
constexpr CgroupFiles kV2{"/memory.max", "/memory.high", "/memory.current", "inactive_file"};

// "" when it cannot be read. What was open and has gone (a cgroup that was removed) is opened anew.
std::string MemoryGauge::ReadSmallFile(const std::string& path) {
  UniqueFd& fd = open_[path];
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool fresh = !fd.valid();
    if (fresh) fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) break;
    std::string text;
    char part[4096];  // an idle daemon does little else: no large buffers, no stdio
    ssize_t got = 1;
    while (got > 0 && text.size() < kMostBytes) {  // to its end: what comes short may go on
      got = ::pread(fd.get(), part, sizeof part, static_cast<off_t>(text.size()));
      if (got > 0) text.append(part, static_cast<std::size_t>(got));
    }
    if (got >= 0) {
      if (!keeps_) open_.erase(path);
      return text;
    }
    fd = UniqueFd();
    if (fresh) break;
  }
  open_.erase(path);
  return {};
}

// Narrows `room` by the cgroup in one directory, if there is one.
void MemoryGauge::LookAt(const std::string& directory, const CgroupFiles& names, MemoryRoom& room) {
  std::uint64_t limit = Number(ReadSmallFile(directory + names.limit)).value_or(kNoLimit);
  if (names.soft_limit != nullptr) limit = std::min(limit, Number(ReadSmallFile(directory + names.soft_limit)).value_or(kNoLimit));
  if (limit >= kNoLimit) return;
  const auto used = Number(ReadSmallFile(directory + names.used));
  if (!used) return;
  const std::uint64_t cache = Field(ReadSmallFile(directory + "/memory.stat"), names.cache).value_or(0);
  const std::uint64_t needed = *used > cache ? *used - cache : 0;
  const std::uint64_t left = limit > needed ? limit - needed : 0;
  if (room.cgroup_limit_bytes == 0 || left < room.cgroup_limit_bytes - std::min(room.cgroup_limit_bytes, room.cgroup_used_bytes)) {
    room.cgroup_limit_bytes = limit;
    room.cgroup_used_bytes = needed;
  }
  if (left < room.room_bytes) {
    room.room_bytes = left;
    room.bound_by = directory;
  }
}

// The cgroup and all its ancestors. A path that does not exist below the mount (a container that sees only its own part) means the mount's root.
void MemoryGauge::LookUpwards(const std::string& mount, std::string path, const CgroupFiles& names, MemoryRoom& room) {
  while (!path.empty() && path != "/") {
    LookAt(mount + path, names, room);
    path.erase(path.find_last_of('/'));
  }
  LookAt(mount, names, room);
}

MemoryRoom MemoryGauge::Read() {
  MemoryRoom room;
  keeps_ = !FewDescriptors();
  const auto available = Field(ReadSmallFile(roots_.proc + "/meminfo"), "MemAvailable");
  room.known = available.has_value();
  room.available_bytes = available.value_or(0) << 10;
  room.room_bytes = room.known ? room.available_bytes : std::numeric_limits<std::uint64_t>::max();
  room.bound_by = "node";
  std::string text = ReadSmallFile(roots_.proc + "/self/cgroup");
  if (text != groups_) open_.clear();  // of cgroups that we were in
  groups_ = std::move(text);
  const std::vector<Group> groups = ParseGroups(groups_);
  const bool in_v1 = std::any_of(groups.begin(), groups.end(), [](const Group& group) { return group.has_memory_v1(); });  // then it is in no other hierarchy
  for (const Group& group : groups) {
    if (group.has_memory_v1()) LookUpwards(roots_.cgroup + "/memory", group.path, kV1, room);
    if (in_v1 || !group.is_v2()) continue;
    LookUpwards(roots_.cgroup, group.path, kV2, room);
    LookUpwards(roots_.cgroup + "/unified", group.path, kV2, room);
  }
  if (!room.known && room.bound_by == "node") room.room_bytes = 0;
  return room;
}

std::int64_t LooksToSkipNs(std::uint64_t room_bytes, std::uint64_t floor_bytes) {
  constexpr std::uint64_t kMostSeconds = 9;
  if (floor_bytes == 0) return 0;
  const std::uint64_t seconds = room_bytes / 4 / floor_bytes;  // until nothing is left; the look itself comes five earlier
  return static_cast<std::int64_t>(seconds < 5 ? 0 : std::min(seconds - 5, kMostSeconds)) * 1'000'000'000;
}

std::int64_t HalfTakenNs(std::uint64_t room_bytes, std::uint64_t floor_bytes) {
  constexpr double kLeastNs = 1e8;
  constexpr double kMostNs = 1e10;
  if (floor_bytes == 0) return static_cast<std::int64_t>(kMostNs);
  const double floors = static_cast<double>(room_bytes) / static_cast<double>(floor_bytes);
  return static_cast<std::int64_t>(std::clamp(floors / 8 * 1e9, kLeastNs, kMostNs));
}

}  // namespace tierd::ram
