// What is in the golden directories (tests/golden/ssd-vN).
#pragma once

#include <string>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {

struct GoldenFile {
  const char* path;
  std::uint64_t version;
  std::size_t bytes;
};
inline constexpr GoldenFile kGoldenFiles[] = {
    {"a", 1, 1},          {"train/class0/0001.png", 1, 784}, {"train/class0/0002.png", 2, 784}, {"train/class1/0001.png", 1, 4096},
    {"big/direct", 1, 20'000}, {"big/replaced", 3, 17'000},  {"odd/\xc3\xa4 name\twith\nall", 1, 63}, {"end", 1, 64},
};
inline constexpr std::uint64_t kGoldenSet = 9;
inline constexpr std::uint64_t kGoldenVoidSet = 10;

inline SsdOptions GoldenOptions(const std::string& directory) {
  SsdOptions options = SmallOptions(directory);
  options.region_bytes = 65536;
  options.write_unit_bytes = 16384;
  options.capacity_bytes = 6 * options.region_bytes;
  options.machine_id = "golden";
  return options;
}

}  // namespace tierd::ssd
