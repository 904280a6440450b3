// Reads the region files of a stopped daemon by the book (tierd/ssd/FORMAT.md) and by nothing else: what is really on the disk.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#include "tests/e2e/reading.h"

namespace tierd::e2e {

struct RecordPlace {
  std::string file;         // a region file
  std::uint64_t at = 0;     // of the record's header in it
  std::uint64_t bytes = 0;  // header and payload
  std::uint64_t payload = 0;
};

// Records on disk by relative path. Of a stopped daemon that has evicted nothing: each counts.
inline std::multimap<std::string, RecordPlace> RegionRecords(const std::string& directory) {
  const auto u32 = [](const std::string& bytes, std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return static_cast<std::size_t>(value);
  };
  std::multimap<std::string, RecordPlace> records;
  const std::string superblock = Plain(directory + "/superblock").bytes;
  if (superblock.size() != 16384 || superblock.substr(0, 8) != "TIERDSSD") return records;
  const std::string uuid = superblock.substr(16, 16);
  const std::size_t region_bytes = u32(superblock, 120), alignment = u32(superblock, 124);
  const auto round_up = [](std::size_t value, std::size_t step) { return (value + step - 1) / step * step; };
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().rfind("regions-", 0) != 0) continue;
    const std::string file = Plain(entry.path()).bytes;
    for (std::size_t start = 0; start + region_bytes <= file.size(); start += region_bytes) {
      const std::string region = file.substr(start, region_bytes);
      const auto is_record = [&](std::size_t at, std::size_t previous_end) {
        return at + 168 <= region.size() && region.compare(at, 8, "TIERDREC") == 0 && region.compare(at + 16, 16, uuid) == 0 && u32(region, at + 44) == at &&
               u32(region, at + 48) == previous_end;
      };
      for (std::size_t at = 0, end = 0; is_record(at, end);) {
        end = at + u32(region, at + 156);
        records.emplace(region.substr(at + 168, u32(region, at + 52)), RecordPlace{entry.path().string(), start + at, end - at, u32(region, at + 148)});
        at = round_up(end, 64);
        if (!is_record(at, end)) at = round_up(end, alignment);
      }
    }
  }
  return records;
}

// Payload bytes on disk by relative path.
inline std::map<std::string, std::uint64_t> RegionPayloads(const std::string& directory) {
  std::map<std::string, std::uint64_t> payloads;
  for (const auto& [path, record] : RegionRecords(directory)) payloads[path] += record.payload;
  return payloads;
}

}  // namespace tierd::e2e
