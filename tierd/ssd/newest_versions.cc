#include "tierd/ssd/newest_versions.h"

namespace tierd::ssd {

namespace {

// Short: whoever is handed a chunk compares its whole version with the file's.
std::uint32_t VersionDigest(const RecordIdentity& id) {
  std::uint64_t d = abi::Mix64(id.version.ino + 0x9e3779b97f4a7c15ull);
  for (const std::uint64_t word : {id.version.size, static_cast<std::uint64_t>(id.version.mtime_ns), static_cast<std::uint64_t>(id.version.ctime_ns),
                                   id.dataset_id, id.source_id, std::uint64_t{id.chunk_bytes}}) {
    d = abi::Mix64((d ^ word) + 0x9e3779b97f4a7c15ull);
  }
  return static_cast<std::uint32_t>(d);
}

// 64 of the 128 bits: two files that share them cost one of them its cache entry, nothing else.
std::uint64_t TableKey(abi::FileKey key) { return key.lo == 0 ? 1 : key.lo; }

}  // namespace

NewestVersions::NewestVersions(std::size_t expected) { files_.slots.resize(expected + expected / 2 + 16); }

// The upper bits, spread over a table of any size.
std::size_t NewestVersions::Table::HomeOf(std::uint64_t key) const {
  return static_cast<std::size_t>((static_cast<unsigned __int128>(abi::Mix64(key)) * slots.size()) >> 64);
}

NewestVersions::Entry& NewestVersions::Table::Find(std::uint64_t key) {
  if (slots.size() < 16 || used * 4 > slots.size() * 3) Grow();
  std::size_t i = HomeOf(key);
  while (slots[i].key != 0 && slots[i].key != key) i = i + 1 == slots.size() ? 0 : i + 1;
  if (slots[i].key == 0) {
    slots[i].key = key;
    ++used;
  }
  return slots[i];
}

void NewestVersions::Table::Grow() {
  std::vector<Entry> old(slots.empty() ? 64 : slots.size() * 2);
  old.swap(slots);
  for (const Entry& entry : old) {
    if (entry.key == 0) continue;
    std::size_t i = HomeOf(entry.key);
    while (slots[i].key != 0) i = i + 1 == slots.size() ? 0 : i + 1;
    slots[i] = entry;
  }
}

bool NewestVersions::Better(const Entry& entry, std::uint64_t fill, std::uint64_t epoch) {
  // Fill sequences start above 0, so an entry that was never filled loses.
  return fill > entry.fill || (fill == entry.fill && epoch > entry.epoch);
}

void NewestVersions::Offer(const RecordIdentity& id, std::uint64_t region_epoch) {
  const std::uint32_t number = offered_++;
  const bool chunked = id.version.size > id.chunk_bytes;
  const std::uint32_t version = chunked ? VersionDigest(id) : 0;
  const auto offer = [&](Entry& entry) {
    if (!Better(entry, id.fill_sequence, region_epoch)) return;
    entry.version = version;
    entry.fill = id.fill_sequence;
    entry.epoch = region_epoch;
    entry.number = number & 0x7fffffffu;
    entry.chunked = chunked ? 1 : 0;
  };
  offer(files_.Find(TableKey(id.key)));
  if (!chunked) return;
  const std::uint64_t chunk_key = TableKey(abi::ChunkKeyOf(id.key, id.chunk));
  Entry& chunk = chunks_.Find(chunk_key);
  if (chunk.fill == 0) chunk_files_.push_back({chunk_key, TableKey(id.key)});
  offer(chunk);
}

void NewestVersions::Decide() {
  wins_.assign(offered_, false);
  for (const Entry& file : files_.slots) {
    if (file.key != 0 && file.fill != 0 && file.chunked == 0) wins_[file.number] = true;
  }
  for (const ChunkFile& c : chunk_files_) {
    const Entry& chunk = chunks_.Find(c.chunk_key);
    const Entry& file = files_.Find(c.file_key);
    if (file.chunked != 0 && chunk.version == file.version) wins_[chunk.number] = true;
  }
  files_ = Table();
  chunks_ = Table();
  chunk_files_ = {};
}

}  // namespace tierd::ssd
