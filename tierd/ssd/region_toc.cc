#include "tierd/ssd/region_toc.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tierd/base/check.h"
#include "tierd/base/crc32c.h"

namespace tierd::ssd {

namespace {

TocScope ScopeOf(const RecordIdentity& id) { return {id.source_id, id.dataset_id, id.dataset_generation, id.chunk_bytes, 0}; }

TocEntry EntryOf(const RecordIdentity& id, const SsdLocation& location) {
  TocEntry e;
  e.place = location.place;
  e.stored_bytes = location.stored_bytes;
  e.chunk = id.chunk;
  e.fill_sequence = id.fill_sequence;
  e.key = id.key;
  e.version = id.version;
  return e;
}

RecoveredRecord RecordOf(const TocScope& scope, const TocEntry& e, std::uint32_t region, std::uint64_t epoch) {
  RecoveredRecord r;
  r.identity = {scope.source_id, scope.dataset_id, scope.dataset_generation, e.key, e.version, e.chunk, scope.chunk_bytes, e.fill_sequence};
  r.location = {e.fill_sequence, region, static_cast<std::uint32_t>(epoch), e.place, e.stored_bytes};
  return r;
}

template <typename T>
void AppendBytes(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Takes the first entry off `entries`; `path` is that of the one before, then its own. False: it does not fit.
bool TakeEntry(std::span<const TocScope> scopes, std::string_view& entries, TocEntry& e, std::string& path) {
  if (entries.size() < sizeof(e)) return false;
  std::memcpy(&e, entries.data(), sizeof(e));
  entries.remove_prefix(sizeof(e));
  if (e.suffix > entries.size() || e.shared > path.size() || e.shared + e.suffix > kMaxPathBytes || e.scope >= scopes.size()) return false;
  path.resize(e.shared);
  path.append(entries.substr(0, e.suffix));
  entries.remove_prefix(e.suffix);
  return true;
}

// Walks `count` entries at `entries`. Stops with false at the first that does not fit.
bool VisitEntries(std::span<const TocScope> scopes, std::string_view entries, std::uint32_t count,
                  const std::function<void(const TocScope&, const TocEntry&, std::string_view)>& visit) {
  std::string path;
  for (std::uint32_t i = 0; i < count; ++i) {
    TocEntry e;
    if (!TakeEntry(scopes, entries, e, path)) return false;
    visit(scopes[e.scope], e, path);
  }
  return entries.empty();
}

std::uint32_t BodySeed(const RecordSalt& salt, std::uint32_t region, std::uint64_t epoch) {
  const std::uint64_t words[] = {kTocMagic, region, epoch};
  return WordsSeed(salt, words);
}

}  // namespace

void TocBuilder::Reset(std::uint32_t region, std::uint64_t epoch) {
  region_ = region;
  epoch_ = epoch;
  entries_ = 0;
  scopes_.clear();
  body_.clear();
  last_path_.clear();
}

std::uint32_t TocBuilder::BytesWith(std::size_t path_bytes, std::uint32_t alignment) const {
  const std::size_t bytes = (scopes_.size() + 1) * sizeof(TocScope) + body_.size() + sizeof(TocEntry) + path_bytes + sizeof(TocFooter);
  return AlignUp(static_cast<std::uint32_t>(bytes), alignment);
}

bool TocBuilder::Add(const RecordIdentity& identity, const SsdLocation& location, std::string_view path) {
  const TocScope scope = ScopeOf(identity);
  // From the back: records of one scope come in runs.
  std::size_t number = scopes_.size();
  while (number > 0 && !(scopes_[number - 1] == scope)) --number;
  if (number == 0) {
    if (scopes_.size() >= 0xffff) return false;
    scopes_.push_back(scope);
    number = scopes_.size();
  }
  TocEntry e = EntryOf(identity, location);
  e.scope = static_cast<std::uint16_t>(number - 1);
  const auto differ = std::mismatch(path.begin(), path.end(), last_path_.begin(), last_path_.end()).first;
  e.shared = static_cast<std::uint16_t>(differ - path.begin());
  e.suffix = static_cast<std::uint16_t>(path.size() - e.shared);
  body_.reserve(body_.size() + sizeof(e) + e.suffix);  // a part of an entry would spoil the rest
  last_path_.reserve(path.size());
  AppendBytes(body_, e);
  body_.append(path.substr(e.shared));
  last_path_.assign(path);
  ++entries_;
  return true;
}

std::uint32_t TocBuilder::Finish(const RecordSalt& salt, std::uint32_t records_end, std::uint32_t alignment, std::span<std::byte> region) const {
  const auto total = AlignUp(static_cast<std::uint32_t>(bytes() + sizeof(TocFooter)), alignment);
  const auto start = static_cast<std::uint32_t>(region.size()) - total;
  TIERD_CHECK(start >= AlignUp(records_end, alignment));
  std::memset(region.data() + start, 0, total);
  const std::size_t scope_bytes = scopes_.size() * sizeof(TocScope);
  std::memcpy(region.data() + start, scopes_.data(), scope_bytes);
  std::memcpy(region.data() + start + scope_bytes, body_.data(), body_.size());
  const TocFooter footer = FooterFor(salt, region.subspan(start, bytes()), start, records_end);
  std::memcpy(region.data() + region.size() - sizeof(footer), &footer, sizeof(footer));
  return start;
}

std::string TocBuilder::EncodeIndexValue(const RecordSalt& salt) const {
  std::string value;
  value.reserve(sizeof(TocFooter) + bytes());
  value.resize(sizeof(TocFooter));
  value.append(reinterpret_cast<const char*>(scopes_.data()), scopes_.size() * sizeof(TocScope));
  value.append(body_);
  const TocFooter footer = FooterFor(salt, std::as_bytes(std::span(value)).subspan(sizeof(TocFooter)), 0, 0);
  std::memcpy(value.data(), &footer, sizeof(footer));
  return value;
}

TocFooter TocBuilder::FooterFor(const RecordSalt& salt, std::span<const std::byte> body, std::uint32_t body_offset, std::uint32_t records_end) const {
  TocFooter footer;
  footer.uuid = salt.uuid;
  footer.region_epoch = epoch_;
  footer.region = region_;
  footer.entries = entries_;
  footer.scopes = static_cast<std::uint32_t>(scopes_.size());
  footer.body_offset = body_offset;
  footer.body_bytes = static_cast<std::uint32_t>(body.size());
  footer.records_end = records_end;
  footer.body_crc = Crc32c(body.data(), body.size(), BodySeed(salt, region_, epoch_));
  footer.footer_crc = Crc32c(&footer, sizeof(footer), BodySeed(salt, region_, epoch_));
  return footer;
}

void TocBuilder::Visit(const RecordVisitor& visit) const {
  const bool whole = VisitEntries(scopes_, body_, entries_, [&](const TocScope& scope, const TocEntry& e, std::string_view path) {
    RecoveredRecord r = RecordOf(scope, e, region_, epoch_);
    r.path = path;
    visit(r);
  });
  TIERD_CHECK(whole);
}

bool TocBuilder::VisitSome(TocCursor& cursor, std::uint32_t most, const RecordVisitor& visit) const {
  for (std::uint32_t i = 0; i < most && cursor.entry < entries_; ++i) {
    std::string_view rest = std::string_view(body_).substr(cursor.at);
    TocEntry e;
    TIERD_CHECK(TakeEntry(scopes_, rest, e, cursor.path));
    cursor.at = body_.size() - rest.size();
    ++cursor.entry;
    RecoveredRecord r = RecordOf(scopes_[e.scope], e, region_, epoch_);
    r.path = cursor.path;
    visit(r);
  }
  return cursor.entry < entries_;
}

std::optional<TocFooter> DecodeFooter(const RecordSalt& salt, std::uint32_t region, std::uint32_t region_bytes, std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(TocFooter)) return std::nullopt;
  TocFooter f;
  std::memcpy(&f, bytes.data(), sizeof(f));
  if (f.magic != kTocMagic || f.format != kFormat || f.uuid != salt.uuid || f.region != region) return std::nullopt;
  TocFooter unsealed = f;
  unsealed.footer_crc = 0;
  if (Crc32c(&unsealed, sizeof(unsealed), BodySeed(salt, region, f.region_epoch)) != f.footer_crc) return std::nullopt;
  const std::uint64_t end = std::uint64_t{f.body_offset} + f.body_bytes;
  if (f.records_end > f.body_offset || end > region_bytes - sizeof(TocFooter)) return std::nullopt;
  if (std::uint64_t{f.scopes} * sizeof(TocScope) + std::uint64_t{f.entries} * sizeof(TocEntry) > f.body_bytes) return std::nullopt;
  return f;
}

bool DecodeToc(const RecordSalt& salt, const TocFooter& footer, std::span<const std::byte> body, const RecordVisitor& visit) {
  if (body.size() != footer.body_bytes) return false;
  if (Crc32c(body.data(), body.size(), BodySeed(salt, footer.region, footer.region_epoch)) != footer.body_crc) return false;
  std::vector<TocScope> scopes(footer.scopes);
  const std::size_t scope_bytes = scopes.size() * sizeof(TocScope);
  if (!scopes.empty()) std::memcpy(scopes.data(), body.data(), scope_bytes);
  const std::string_view entries(reinterpret_cast<const char*>(body.data()) + scope_bytes, body.size() - scope_bytes);
  return VisitEntries(scopes, entries, footer.entries, [&](const TocScope& scope, const TocEntry& e, std::string_view path) {
    RecoveredRecord r = RecordOf(scope, e, footer.region, footer.region_epoch);
    r.path = path;
    visit(r);
  });
}

bool DecodeIndexValue(const RecordSalt& salt, std::uint32_t region, std::string_view value, std::uint64_t* epoch, const RecordVisitor& visit) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(value));
  if (bytes.size() < sizeof(TocFooter) || bytes.size() > std::numeric_limits<std::uint32_t>::max()) return false;
  const auto footer = DecodeFooter(salt, region, static_cast<std::uint32_t>(bytes.size()), bytes.first(sizeof(TocFooter)));
  if (!footer || footer->body_offset != 0) return false;
  *epoch = footer->region_epoch;
  return DecodeToc(salt, *footer, bytes.subspan(sizeof(TocFooter)), visit);
}

}  // namespace tierd::ssd
