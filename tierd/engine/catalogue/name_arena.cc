#include "tierd/engine/catalogue/name_arena.h"

#include <cstring>

#include "tierd/base/check.h"

namespace tierd::engine {
namespace {
std::size_t EntryBytes(std::size_t name_bytes) { return (2 + name_bytes + 3) & ~std::size_t{3}; }
}  // namespace

char* NameArena::At(std::uint32_t ref) const {
  const std::size_t position = std::size_t{ref} * 4;
  return pages_[position / kPageBytes].get() + position % kPageBytes;
}

std::uint32_t NameArena::Add(std::string_view name) {
  TIERD_CHECK(name.size() <= 0xffff);
  const std::size_t bytes = EntryBytes(name.size());
  std::uint32_t ref;
  if (auto it = free_.find(bytes); it != free_.end() && !it->second.empty()) {
    ref = it->second.back();
    it->second.pop_back();
  } else {
    if (used_in_last_ + bytes > kPageBytes) {
      pages_.push_back(std::make_unique<char[]>(kPageBytes));
      used_in_last_ = 0;
    }
    ref = static_cast<std::uint32_t>(((pages_.size() - 1) * kPageBytes + used_in_last_) / 4);
    used_in_last_ += bytes;
  }
  char* at = At(ref);
  const auto length = static_cast<std::uint16_t>(name.size());
  std::memcpy(at, &length, 2);
  std::memcpy(at + 2, name.data(), name.size());
  return ref;
}

std::string_view NameArena::Get(std::uint32_t ref) const {
  const char* at = At(ref);
  std::uint16_t length;
  std::memcpy(&length, at, 2);
  return {at + 2, length};
}

void NameArena::Remove(std::uint32_t ref) { free_[EntryBytes(Get(ref).size())].push_back(ref); }

}  // namespace tierd::engine
