#include "tierd/ram/memory_pressure.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

namespace tierd::ram {
namespace {

std::optional<std::string> ReadSmallFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return std::nullopt;
  std::string text(64 << 10, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

// The number behind `name` at the start of a line: "MemAvailable:   24289380 kB", "inactive_file 4096".
std::optional<std::uint64_t> Field(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line(text.substr(at, end - at));
    if (line.size() > name.size() && line.compare(0, name.size(), name) == 0 && (line[name.size()] == ' ' || line[name.size()] == ':')) {
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
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
  const auto used = Number(directory + names.used);
  if (!used) return;
  std::uint64_t limit = Number(directory + names.limit).value_or(kNoLimit);
  if (names.soft_limit != nullptr) limit = std::min(limit, Number(directory + names.soft_limit).value_or(kNoLimit));
  if (limit >= kNoLimit) return;
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

}  // namespace tierd::ram
