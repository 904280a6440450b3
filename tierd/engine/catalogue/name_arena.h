// File names of the catalogue, packed: a million names cost their bytes plus two each. Freed names are reused by length.
// Owned by the Catalogue; loop thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tierd::engine {

class NameArena {
 public:
  // Stores a copy; `name` is at most 65,535 bytes. The reference stays valid until Remove.
  std::uint32_t Add(std::string_view name);
  std::string_view Get(std::uint32_t ref) const;
  void Remove(std::uint32_t ref);
  std::uint64_t memory_bytes() const { return pages_.size() * kPageBytes; }

 private:
  // A reference is (page * kPageBytes + offset) / 4; entries start at multiples of 4: u16 length, bytes.
  static constexpr std::size_t kPageBytes = std::size_t{1} << 18;
  char* At(std::uint32_t ref) const;

  std::vector<std::unique_ptr<char[]>> pages_;
  std::size_t used_in_last_ = kPageBytes;
  std::unordered_map<std::size_t, std::vector<std::uint32_t>> free_;  // by padded entry size
};

}  // namespace tierd::engine
