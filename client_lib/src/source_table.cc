#include "client_lib/src/source_table.h"

#include <cstdlib>
#include <new>

namespace tierd::client {
namespace {

bool IsOrIsBelow(const char* path, std::size_t bytes, const char* directory, std::size_t directory_bytes) {
  if (bytes < directory_bytes || std::memcmp(path, directory, directory_bytes) != 0) return false;
  return bytes == directory_bytes || directory_bytes == 0 || path[directory_bytes] == '/';
}

bool Valid(const abi::SourceEntry& entry, std::size_t left) {
  if (entry.entry_bytes > left || entry.entry_bytes != abi::PadTo8(sizeof entry + entry.path_bytes)) return false;
  const std::uint64_t chunk = entry.chunk_bytes;
  return entry.path_bytes > 0 && chunk != 0 && (chunk & (chunk - 1)) == 0 && entry.staleness <= static_cast<std::uint8_t>(abi::Staleness::kOpen);
}

}  // namespace

bool Prefixes::Allow(const char* path, std::size_t path_bytes) const {
  if (count == 0) return true;
  for (std::size_t i = 0; i < count; ++i) {
    if (IsOrIsBelow(path, path_bytes, text[i], bytes[i])) return true;
  }
  return false;
}

bool Prefixes::Touches(const char* directory, std::size_t directory_bytes) const {
  if (Allow(directory, directory_bytes)) return true;
  for (std::size_t i = 0; i < count; ++i) {
    if (IsOrIsBelow(text[i], bytes[i], directory, directory_bytes)) return true;
  }
  return false;
}

SourceTable* SourceTable::Create(const std::byte* entries, std::size_t bytes, std::uint32_t count, const Prefixes& prefixes) {
  if (count > kMaxSources) return nullptr;
  // One block: the table, its sources, their paths.
  char* const memory = static_cast<char*>(std::calloc(1, sizeof(SourceTable) + count * sizeof(Source) + bytes + count));
  if (memory == nullptr) return nullptr;
  auto* table = new (memory) SourceTable;
  table->sources_ = reinterpret_cast<Source*>(memory + sizeof(SourceTable));
  char* text = memory + sizeof(SourceTable) + count * sizeof(Source);
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    abi::SourceEntry entry;
    if (bytes - at < sizeof entry) return std::free(memory), nullptr;
    std::memcpy(&entry, entries + at, sizeof entry);
    if (!Valid(entry, bytes - at)) return std::free(memory), nullptr;
    std::size_t root_bytes = entry.path_bytes;
    std::memcpy(text, entries + at + sizeof entry, root_bytes);
    at += entry.entry_bytes;
    while (root_bytes > 0 && text[root_bytes - 1] == '/') --root_bytes;
    text[root_bytes] = '\0';
    if (std::memchr(text, '\0', root_bytes) != nullptr || (root_bytes > 0 && text[0] != '/')) return std::free(memory), nullptr;
    std::uint32_t place = table->count_++;
    Source* const sources = table->sources_;
    for (; place > 0 && sources[place - 1].root_bytes < root_bytes; --place) std::memcpy(static_cast<void*>(&sources[place]), &sources[place - 1], sizeof(Source));
    Source* source = new (&sources[place]) Source{};
    source->root = text;
    source->root_bytes = static_cast<std::uint32_t>(root_bytes);
    source->id = entry.source_id;
    source->dev = entry.root_dev;
    source->ino = entry.root_ino;
    source->chunk_bytes = entry.chunk_bytes;
    source->staleness = static_cast<abi::Staleness>(entry.staleness);
    source->ttl_ms = entry.ttl_ms;
    source->partly = !prefixes.Covers(text, root_bytes);
    source->advice_only = !prefixes.Touches(text, root_bytes);
    text += root_bytes + 1;
  }
  return table;
}

std::int64_t SourceTable::LongestValidityNs() const {
  std::int64_t longest = 0;
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (sources_[i].advice_only) continue;
    if (sources_[i].staleness == abi::Staleness::kImmutable) return -1;
    const std::int64_t ttl_ns = std::int64_t{sources_[i].ttl_ms} * 1'000'000;
    if (ttl_ns > longest) longest = ttl_ns;
  }
  return longest;
}

}  // namespace tierd::client
