// The table of contents at the end of a closed region, and the same bytes as a value of the index. FORMAT.md has the grammar.
//
// Plain values; a builder belongs to the region buffer it describes. Does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tierd/ssd/record.h"
#include "tierd/ssd/ssd_tier.h"

namespace tierd::ssd {

inline constexpr std::uint64_t kTocMagic = 0x434f544452454954ull;  // "TIERDTOC"

// What many records of a region share; entries name it by its number.
struct TocScope {
  std::uint64_t source_id = 0;
  std::uint64_t dataset_id = 0;
  std::uint64_t dataset_generation = 0;
  std::uint32_t chunk_bytes = 0;
  std::uint32_t reserved = 0;
  bool operator==(const TocScope&) const = default;
};
static_assert(sizeof(TocScope) == 32);

// One record; `suffix` bytes of path follow, the first `shared` bytes are those of the entry before.
struct TocEntry {
  std::uint32_t place = 0;
  std::uint32_t stored_bytes = 0;
  std::uint32_t chunk = 0;
  std::uint16_t scope = 0;
  std::uint16_t reserved = 0;
  std::uint16_t shared = 0;
  std::uint16_t suffix = 0;
  std::uint32_t reserved2 = 0;
  std::uint64_t fill_sequence = 0;
  abi::FileKey key;
  StoredVersion version;
};
static_assert(sizeof(TocEntry) == 80 && std::has_unique_object_representations_v<TocEntry>);

// The last bytes of a region.
struct TocFooter {
  std::uint64_t magic = kTocMagic;
  std::array<std::uint8_t, 16> uuid{};
  std::uint64_t region_epoch = 0;
  std::uint32_t region = 0;
  std::uint32_t format = kFormat;
  std::uint32_t entries = 0;
  std::uint32_t scopes = 0;
  std::uint32_t body_offset = 0;  // in the region: scopes, then entries
  std::uint32_t body_bytes = 0;
  std::uint32_t records_end = 0;
  std::uint32_t body_crc = 0;
  std::uint32_t reserved = 0;
  std::uint32_t footer_crc = 0;   // with this field 0
};
static_assert(sizeof(TocFooter) == 72 && std::has_unique_object_representations_v<TocFooter>);

using RecordVisitor = std::function<void(const RecoveredRecord&)>;

// How far a visit in pieces has come.
struct TocCursor {
  std::size_t at = 0;       // byte of the next entry
  std::uint32_t entry = 0;  // its number
  std::string path;         // of the one before
};

// Grows with the open region.
class TocBuilder {
 public:
  void Reset(std::uint32_t region, std::uint64_t epoch);
  // What a record with such a path adds to it, at most.
  static std::size_t EntryBytes(std::size_t path_bytes) { return sizeof(TocEntry) + path_bytes; }
  // Bytes at the end of the region (multiple of `alignment`) if one more record with such a path were added.
  std::uint32_t BytesWith(std::size_t path_bytes, std::uint32_t alignment) const;
  // False if the table is full (65,535 scopes); the region is then closed.
  bool Add(const RecordIdentity& identity, const SsdLocation& location, std::string_view path);
  // Writes body and footer to the end of `region` (the whole region's buffer); returns the offset where they start, a multiple of
  // `alignment`; the bytes between are zeroed.
  std::uint32_t Finish(const RecordSalt& salt, std::uint32_t records_end, std::uint32_t alignment, std::span<std::byte> region) const;
  // The same without a place in the region, as the index keeps it.
  std::string EncodeIndexValue(const RecordSalt& salt) const;
  // All entries in order of place.
  void Visit(const RecordVisitor& visit) const;
  // The next `most` of them from the cursor on, which stands behind an entry when it is visited. False: there are no more.
  bool VisitSome(TocCursor& cursor, std::uint32_t most, const RecordVisitor& visit) const;
  std::uint32_t entries() const { return entries_; }
  std::uint32_t region() const { return region_; }
  std::uint64_t epoch() const { return epoch_; }
  // Memory it takes, about.
  std::size_t bytes() const { return scopes_.size() * sizeof(TocScope) + body_.size(); }

 private:
  TocFooter FooterFor(const RecordSalt& salt, std::span<const std::byte> body, std::uint32_t body_offset, std::uint32_t records_end) const;

  std::uint32_t region_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint32_t entries_ = 0;
  std::vector<TocScope> scopes_;
  std::string body_;  // entries only
  std::string last_path_;
};

// Checks a footer (the last sizeof(TocFooter) bytes of a region). None: no sound footer of this region.
std::optional<TocFooter> DecodeFooter(const RecordSalt& salt, std::uint32_t region, std::uint32_t region_bytes, std::span<const std::byte> bytes);
// Checks and visits a body. False (perhaps after some visits) if it does not hold; callers collect first.
bool DecodeToc(const RecordSalt& salt, const TocFooter& footer, std::span<const std::byte> body, const RecordVisitor& visit);

// Value of the index for one region: footer, then body. An index value of another region, epoch or directory does not hold.
// False (perhaps after some visits) if it does not hold; else *epoch is the region's.
bool DecodeIndexValue(const RecordSalt& salt, std::uint32_t region, std::string_view value, std::uint64_t* epoch, const RecordVisitor& visit);

}  // namespace tierd::ssd
