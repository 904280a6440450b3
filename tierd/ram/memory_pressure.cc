#include "tierd/ram/memory_pressure.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "tierd/base/unique_fd.h"

namespace tierd::ram {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;

std::optional<std::string> ReadSmallFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  std::string text;
  char part[4096];  // an idle daemon does little else: no large buffers, no stdio
  for (ssize_t got = 0; text.size() < kMostBytes && (got = ::read(fd.get(), part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(got));
  return text;
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

// A file with one number; "max" and v1's 2^63 are no limit.
std::optional<std::uint64_t> Number(const std::string& path) {
  const auto text = ReadSmallFile(path);
  if (!text || text->empty() || (*text)[0] < '0' || (*text)[0] > '9') return std::nullopt;
  return std::strtoull(text->c_str(), nullptr, 10);
}

struct FileNames {
  const char* limit;
  const char* soft_limit;  // throttles before the hard one; null: none
  const char* used;
  const char* cache;  // field of memory.stat: clean or at least reclaimable page cache
};
constexpr FileNames kV1{"/memory.limit_in_bytes", nullptr, "/memory.usage_in_bytes", "total_inactive_file"};
constexpr FileNames kV2{"/memory.max", "/memory.high", "/memory.current", "inactive_file"};
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

// Narrows `room` by the cgroup in one directory, if there is one.
void LookAt(const std::string& directory, const FileNames& names, MemoryRoom& room) {
  std::uint64_t limit = Number(directory + names.limit).value_or(kNoLimit);
  if (names.soft_limit != nullptr) limit = std::min(limit, Number(directory + names.soft_limit).value_or(kNoLimit));
  if (limit >= kNoLimit) return;
  const auto used = Number(directory + names.used);
  if (!used) return;
  const std::uint64_t cache = Field(ReadSmallFile(directory + "/memory.stat").value_or(""), names.cache).value_or(0);
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
void LookUpwards(const std::string& mount, std::string path, const FileNames& names, MemoryRoom& room) {
  while (!path.empty() && path != "/") {
    LookAt(mount + path, names, room);
    path.erase(path.find_last_of('/'));
  }
  LookAt(mount, names, room);
}

}  // namespace

MemoryRoom ReadMemoryRoom(const MemoryRoots& roots) {
  MemoryRoom room;
  const auto available = Field(ReadSmallFile(roots.proc + "/meminfo").value_or(""), "MemAvailable");
  room.known = available.has_value();
  room.available_bytes = available.value_or(0) << 10;
  room.room_bytes = room.known ? room.available_bytes : std::numeric_limits<std::uint64_t>::max();
  room.bound_by = "node";
  const std::string groups = ReadSmallFile(roots.proc + "/self/cgroup").value_or("");
  for (std::size_t at = 0; at < groups.size();) {
    const std::size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string line = groups.substr(at, end - at);  // "4:memory:/a/b" (v1), "0::/a/b" (v2)
    at = end + 1;
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (controllers.find(",memory,") != std::string::npos) LookUpwards(roots.cgroup + "/memory", path, kV1, room);
    if (controllers == ",,") {
      LookUpwards(roots.cgroup, path, kV2, room);
      LookUpwards(roots.cgroup + "/unified", path, kV2, room);
    }
  }
  if (!room.known && room.bound_by == "node") room.room_bytes = 0;
  return room;
}

std::int64_t LooksToSkipNs(std::uint64_t room_bytes, std::uint64_t floor_bytes) {
  constexpr std::uint64_t kMostSeconds = 9;
  if (floor_bytes == 0) return 0;
  const std::uint64_t seconds = room_bytes / 4 / floor_bytes;  // until nothing is left; the look itself comes two earlier
  return static_cast<std::int64_t>(seconds < 2 ? 0 : std::min(seconds - 2, kMostSeconds)) * 1'000'000'000;
}

}  // namespace tierd::ram
