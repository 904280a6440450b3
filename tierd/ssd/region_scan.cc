#include "tierd/ssd/region_scan.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace tierd::ssd {

namespace {

// Longest possible header: fixed part and path, rounded to the largest alignment.
constexpr std::size_t kLongestHeader = 8192;
static_assert(sizeof(RecordHeader) + kMaxPathBytes <= kLongestHeader);
// First read of a table of contents: all of it for regions of some hundred records.
constexpr std::size_t kTailBytes = 65536;
// What cannot be read is read by halves, down to this. After so many failures, each of which may take seconds, a half that fails is given up as a whole.
constexpr std::uint32_t kLeastHalf = 4096;
constexpr unsigned kMostFailures = 64;

SsdLocation LocationOf(const RecordHeader& h) {
  return {h.identity.fill_sequence, h.region, static_cast<std::uint32_t>(h.region_epoch), EncodePlace(h.offset, h.header_bytes), h.stored_bytes};
}

// The epoch that a header at `bytes` claims; DecodeHeader says whether that is true.
std::uint64_t ClaimedEpoch(std::span<const std::byte> bytes) {
  std::uint64_t epoch = 0;
  if (bytes.size() >= sizeof(RecordHeader)) std::memcpy(&epoch, bytes.data() + offsetof(RecordHeader, region_epoch), sizeof(epoch));
  return epoch;
}

bool DecodeAt(const ScanFormat& format, std::span<const std::byte> image, RecordPlace place, DecodedHeader* out) {
  if (place.offset >= image.size()) return false;
  const std::span<const std::byte> bytes = image.subspan(place.offset);
  if (DecodeHeader(format.salt, bytes, place, out) != HeaderCheck::kOk) return false;
  return out->header.previous_end == place.previous_end && out->header.record_bytes <= bytes.size();
}

// A table that outlived the reuse of its region would list what was overwritten: the first record says whose region it is.
// None: not of this epoch, or not sound.
std::optional<Status> CheckFirstRecord(const ScanFormat& format, std::uint32_t region, RegionAddress address, std::uint64_t epoch) {
  io::AlignedBuffer head(kLongestHeader);
  if (head.empty()) return std::nullopt;
  if (Status read = RegionFiles::ReadRegion(address, 0, head.span()); !read.ok()) return read;
  DecodedHeader first;
  if (DecodeHeader(format.salt, head.span(), {region, 0, epoch, 0}, &first) != HeaderCheck::kOk) return std::nullopt;
  return Status::Ok();
}

// None: there is no table of contents that is believed. `known_epoch` 0: the first record says it.
std::optional<RegionContents> ReadToc(const ScanFormat& format, std::uint32_t region, RegionAddress address, std::uint64_t known_epoch) {
  const std::size_t tail_bytes = std::min<std::size_t>(kTailBytes, format.region_bytes);
  io::AlignedBuffer tail(tail_bytes);
  if (tail.empty()) return std::nullopt;
  const std::uint64_t tail_start = format.region_bytes - tail_bytes;
  RegionContents out;
  out.status = RegionFiles::ReadRegion(address, tail_start, tail.span());
  if (!out.status.ok()) return out;
  const auto footer = DecodeFooter(format.salt, region, format.region_bytes, std::span<const std::byte>(tail.span()).last(sizeof(TocFooter)));
  if (!footer || (known_epoch != 0 && footer->region_epoch != known_epoch)) return std::nullopt;
  io::AlignedBuffer longer;
  std::span<const std::byte> from_body;
  if (footer->body_offset >= tail_start) {
    from_body = tail.span().subspan(footer->body_offset - tail_start);
  } else {
    if (footer->body_offset % format.alignment != 0) return std::nullopt;
    longer = io::AlignedBuffer(format.region_bytes - footer->body_offset);
    if (longer.empty()) return std::nullopt;
    out.status = RegionFiles::ReadRegion(address, footer->body_offset, longer.span().first(format.region_bytes - footer->body_offset));
    if (!out.status.ok()) return out;
    from_body = longer.span();
  }
  if (known_epoch == 0) {
    std::optional<Status> first = CheckFirstRecord(format, region, address, footer->region_epoch);
    if (!first) return std::nullopt;
    out.status = std::move(*first);
    if (!out.status.ok()) return out;
  }
  if (!DecodeToc(format.salt, *footer, from_body.first(footer->body_bytes), [&](const RecoveredRecord& r) { out.records.Add(r); })) return std::nullopt;
  out.epoch = footer->region_epoch;
  out.from_toc = true;
  return out;
}

// The region as far as it can be read.
struct Salvage {
  RegionAddress address;
  std::span<std::byte> image;
  std::optional<std::uint32_t> read;  // where something was
  std::optional<std::uint32_t> lost;  // the first place, of kLeastHalf, that could not be
  unsigned failures = 0;

  void Read(std::uint32_t from, std::uint32_t bytes) {
    const std::span<std::byte> part = image.subspan(from, bytes);
    if (RegionFiles::ReadRegion(address, from, part).ok()) {
      if (!read) read = from;
    } else if (++failures > kMostFailures || bytes <= kLeastHalf) {
      if (!lost) lost = from;
      std::memset(part.data(), 0, part.size());
    } else {
      const std::uint32_t half = bytes / 2 / kLeastHalf * kLeastHalf;
      Read(from, half);
      Read(from + half, bytes - half);
    }
  }
};

}  // namespace

void RecordBatch::Add(const RecoveredRecord& record) {
  constexpr std::size_t kBlock = 65536;
  if (room_ < record.path.size()) {
    blocks_.push_back(std::make_unique<char[]>(kBlock));
    next_ = blocks_.back().get();
    room_ = kBlock;
  }
  std::copy(record.path.begin(), record.path.end(), next_);
  records_.push_back(record);
  records_.back().path = {next_, record.path.size()};
  next_ += record.path.size();
  room_ -= record.path.size();
}

void RecordBatch::Visit(const RecordVisitor& visit) const {
  for (const RecoveredRecord& record : records_) visit(record);
}

WalkResult WalkRegion(const ScanFormat& format, std::uint32_t region, std::span<const std::byte> image, bool verify,
                      const std::function<void(const RecoveredRecord&, bool)>& visit) {
  WalkResult result;
  RecordPlace place{region, 0, ClaimedEpoch(image), 0};
  for (;;) {
    DecodedHeader decoded;
    if (!DecodeAt(format, image, place, &decoded)) {
      // The next record may start at the next aligned place: a direct record, or one after a flush. Its previous_end proves it.
      const std::uint32_t aligned = AlignUp(place.previous_end, format.alignment);
      if (aligned == place.offset) return result;
      place.offset = aligned;
      if (!DecodeAt(format, image, place, &decoded)) return result;
    }
    const RecordHeader& h = decoded.header;
    RecoveredRecord record{h.identity, LocationOf(h), decoded.path};
    bool sound = true;
    if (verify) sound = PayloadCrcCold(format.salt, h.identity, image.subspan(h.offset + h.header_bytes, h.stored_bytes)) == h.payload_crc;
    result.epoch = h.region_epoch;
    ++result.records;
    if (!sound) ++result.damaged;
    visit(record, sound);
    place.offset = place.previous_end = result.records_end = h.offset + h.record_bytes;
  }
}

RegionContents ReadAndWalkRegion(const ScanFormat& format, std::uint32_t region, RegionAddress address, io::AlignedBuffer* scratch) {
  RegionContents out;
  if (scratch->size() < format.region_bytes) *scratch = io::AlignedBuffer(format.region_bytes);
  if (scratch->empty()) {
    out.status = Status(Code::kNoSpace, "no memory to read region " + std::to_string(region));
    return out;
  }
  const std::span<std::byte> image = scratch->span().first(format.region_bytes);
  out.status = RegionFiles::ReadRegion(address, 0, image);
  if (!out.status.ok()) return out;
  const WalkResult walked = WalkRegion(format, region, image, true, [&](const RecoveredRecord& record, bool sound) {
    if (sound) out.records.Add(record);
  });
  out.epoch = walked.epoch;
  return out;
}

RegionContents ReadRegionContents(const ScanFormat& format, std::uint32_t region, RegionAddress address, io::AlignedBuffer* scratch) {
  return ReadKnownContents(format, region, address, 0, scratch);
}

RegionContents ReadKnownContents(const ScanFormat& format, std::uint32_t region, RegionAddress address, std::uint64_t epoch, io::AlignedBuffer* scratch) {
  std::optional<RegionContents> toc = ReadToc(format, region, address, epoch);
  if (toc) return std::move(*toc);
  return ReadAndWalkRegion(format, region, address, scratch);
}

Status ReadRegionImage(const ScanFormat& format, RegionAddress address, io::AlignedBuffer* image) {
  if (image->size() < format.region_bytes) *image = io::AlignedBuffer(format.region_bytes);
  if (image->empty()) return Status(Code::kNoSpace, "no memory to read region at " + std::to_string(address.offset));
  const std::span<std::byte> all = image->span().first(format.region_bytes);
  Status status = RegionFiles::ReadRegion(address, 0, all);
  if (status.ok()) return status;
  Salvage salvage{.address = address, .image = all, .read = {}, .lost = {}};
  salvage.Read(0, format.region_bytes);
  if (!salvage.read) return status;
  // What could be read before still can be, and what could not still cannot: the device is well, and what failed is damaged.
  if (Status again = RegionFiles::ReadRegion(address, *salvage.read, all.subspan(*salvage.read, kLeastHalf)); !again.ok() || !salvage.lost) return again;
  const std::span<std::byte> lost = all.subspan(*salvage.lost, kLeastHalf);
  if (RegionFiles::ReadRegion(address, *salvage.lost, lost).ok()) return status;
  std::memset(lost.data(), 0, lost.size());
  return Status::Ok();
}

std::vector<bool> SoundRecords(const ScanFormat& format, std::uint64_t epoch, std::span<const std::byte> image, std::span<const RecoveredRecord> records) {
  std::vector<bool> sound;
  sound.reserve(records.size());
  for (const RecoveredRecord& record : records) {
    const SsdLocation& at = record.location;
    DecodedHeader decoded;
    const bool found = at.offset() < image.size() &&
                       DecodeHeader(format.salt, image.subspan(at.offset()), {at.region, at.offset(), epoch, 0}, &decoded) == HeaderCheck::kOk &&
                       decoded.header.identity == record.identity && LocationOf(decoded.header) == at &&
                       std::uint64_t{at.offset()} + at.header_bytes() + at.stored_bytes <= image.size();
    sound.push_back(found && PayloadCrcCold(format.salt, record.identity, image.subspan(at.offset() + at.header_bytes(), at.stored_bytes)) ==
                                 decoded.header.payload_crc);
  }
  return sound;
}

Result<std::uint64_t> FirstEpoch(const ScanFormat& format, std::uint32_t region, RegionAddress address) {
  io::AlignedBuffer head(kLongestHeader);
  if (head.empty()) return Status(Code::kNoSpace, "no memory to read region " + std::to_string(region));
  if (Status read = RegionFiles::ReadRegion(address, 0, head.span()); !read.ok()) return read;
  const std::uint64_t epoch = ClaimedEpoch(head.span());
  DecodedHeader decoded;
  return DecodeHeader(format.salt, head.span(), {region, 0, epoch, 0}, &decoded) == HeaderCheck::kOk ? epoch : std::uint64_t{0};
}

}  // namespace tierd::ssd
