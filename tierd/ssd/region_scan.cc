#include "tierd/ssd/region_scan.h"

#include <algorithm>
#include <cstring>

namespace tierd::ssd {

namespace {

// Longest possible header: fixed part and path, rounded to the largest alignment.
constexpr std::size_t kLongestHeader = 8192;
static_assert(sizeof(RecordHeader) + kMaxPathBytes <= kLongestHeader);
// First read of a table of contents: all of it for regions of some hundred records.
constexpr std::size_t kTailBytes = 65536;

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

std::optional<RegionContents> ReadToc(const ScanFormat& format, std::uint32_t region, RegionAddress address) {
  const std::size_t tail_bytes = std::min<std::size_t>(kTailBytes, format.region_bytes);
  io::AlignedBuffer tail(tail_bytes);
  if (tail.empty()) return std::nullopt;
  const std::uint64_t tail_start = format.region_bytes - tail_bytes;
  RegionContents out;
  out.status = RegionFiles::ReadRegion(address, tail_start, tail.span());
  if (!out.status.ok()) return out;
  const auto footer = DecodeFooter(format.salt, region, format.region_bytes, std::span<const std::byte>(tail.span()).last(sizeof(TocFooter)));
  if (!footer) return std::nullopt;
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
  // A table that outlived the reuse of its region would list what was overwritten: the first record says whose region it is.
  io::AlignedBuffer head(kLongestHeader);
  if (head.empty()) return std::nullopt;
  out.status = RegionFiles::ReadRegion(address, 0, head.span());
  if (!out.status.ok()) return out;
  DecodedHeader first;
  if (DecodeHeader(format.salt, head.span(), {region, 0, footer->region_epoch, 0}, &first) != HeaderCheck::kOk) return std::nullopt;
  if (!DecodeToc(format.salt, *footer, from_body.first(footer->body_bytes), [&](const RecoveredRecord& r) { out.records.Add(r); })) return std::nullopt;
  out.epoch = footer->region_epoch;
  out.from_toc = true;
  return out;
}

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
  out.damaged = walked.damaged;
  return out;
}

RegionContents ReadRegionContents(const ScanFormat& format, std::uint32_t region, RegionAddress address, io::AlignedBuffer* scratch) {
  std::optional<RegionContents> toc = ReadToc(format, region, address);
  if (toc) return std::move(*toc);
  return ReadAndWalkRegion(format, region, address, scratch);
}

std::uint64_t FirstEpoch(const ScanFormat& format, std::uint32_t region, RegionAddress address) {
  io::AlignedBuffer head(kLongestHeader);
  if (head.empty() || !RegionFiles::ReadRegion(address, 0, head.span()).ok()) return 0;
  const std::uint64_t epoch = ClaimedEpoch(head.span());
  DecodedHeader decoded;
  return DecodeHeader(format.salt, head.span(), {region, 0, epoch, 0}, &decoded) == HeaderCheck::kOk ? epoch : 0;
}

}  // namespace tierd::ssd
