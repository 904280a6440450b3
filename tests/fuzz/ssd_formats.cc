// Everything that is read back from the SSD: record headers, tables of contents, index values, superblocks. First byte: which; second: bit 0
// repairs the checksums first, so that the checks behind them are reached too.
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/ssd_fixture.h"
#include "tierd/base/crc32c.h"
#include "tierd/ssd/superblock.h"

using namespace tierd;
using namespace tierd::ssd;

namespace {

std::uint32_t BodySeed(std::uint32_t region, std::uint64_t epoch) {
  const std::uint64_t words[] = {kTocMagic, region, epoch};
  return WordsSeed(fuzz::Salt(), words);
}


void Header(std::string bytes, bool repair) {
  RecordHeader h;
  if (repair && bytes.size() >= sizeof h) {
    std::memcpy(&h, bytes.data(), sizeof h);
    h.magic = kRecordMagic;
    h.format = kFormat;
    h.uuid = fuzz::Salt().uuid;
    h.header_crc = 0;
    std::memcpy(bytes.data(), &h, sizeof h);
    const std::size_t covered = std::min<std::size_t>(h.header_bytes, bytes.size());
    const std::uint32_t crc = Crc32c(bytes.data(), covered, IdentitySeed(fuzz::Salt(), h.identity));
    std::memcpy(bytes.data() + offsetof(RecordHeader, header_crc), &crc, sizeof crc);
  }
  const auto view = std::as_bytes(std::span(bytes));
  DecodedHeader out;
  const HeaderCheck check = DecodeHeader(fuzz::Salt(), view, fuzz::Place(), &out);
  if (check == HeaderCheck::kBad) return;
  FUZZ_CHECK(fuzz::Within(out.path, view) && out.path.size() <= kMaxPathBytes);
  FUZZ_CHECK(out.header.stored_bytes <= kMaxPayloadBytes && out.header.record_bytes >= out.header.header_bytes + out.header.stored_bytes);
  if (check == HeaderCheck::kOk) FUZZ_CHECK(out.header.region == fuzz::Place().region && out.header.offset == fuzz::Place().offset);
}

// The end of a region: body and footer.
void Toc(std::string bytes, bool repair) {
  constexpr std::uint32_t kRegionBytes = 65536;
  if (bytes.size() < sizeof(TocFooter) || bytes.size() > kRegionBytes) return;
  const std::size_t footer_at = bytes.size() - sizeof(TocFooter);
  TocFooter f;
  std::memcpy(&f, bytes.data() + footer_at, sizeof f);
  const std::uint32_t shift = kRegionBytes - static_cast<std::uint32_t>(bytes.size());  // offset in the region of the first byte we have
  if (repair) {
    f.magic = kTocMagic;
    f.format = kFormat;
    f.uuid = fuzz::Salt().uuid;
    f.region = fuzz::Place().region;
    if (f.body_offset >= shift && std::uint64_t{f.body_offset} + f.body_bytes <= kRegionBytes) {
      f.body_crc = Crc32c(bytes.data() + (f.body_offset - shift), f.body_bytes, BodySeed(f.region, f.region_epoch));
    }
    f.footer_crc = 0;
    f.footer_crc = Crc32c(&f, sizeof f, BodySeed(f.region, f.region_epoch));
    std::memcpy(bytes.data() + footer_at, &f, sizeof f);
  }
  const auto footer = DecodeFooter(fuzz::Salt(), fuzz::Place().region, kRegionBytes, std::as_bytes(std::span(bytes)).subspan(footer_at));
  if (!footer) return;
  FUZZ_CHECK(std::uint64_t{footer->body_offset} + footer->body_bytes <= kRegionBytes - sizeof(TocFooter));
  if (footer->body_offset < shift) return;
  std::uint32_t visited = 0;
  const auto body = std::as_bytes(std::span(bytes)).subspan(footer->body_offset - shift, footer->body_bytes);
  const bool whole = DecodeToc(fuzz::Salt(), *footer, body, [&](const RecoveredRecord& record) {
    ++visited;
    FUZZ_CHECK(record.path.size() <= kMaxPathBytes);
  });
  FUZZ_CHECK(!whole || visited == footer->entries);
}

void IndexValue(std::string bytes, bool repair) {
  if (bytes.size() < sizeof(TocFooter)) return;
  TocFooter f;
  std::memcpy(&f, bytes.data(), sizeof f);
  if (repair) {
    f.magic = kTocMagic;
    f.format = kFormat;
    f.uuid = fuzz::Salt().uuid;
    f.region = fuzz::Place().region;
    f.body_offset = f.records_end = 0;
    f.body_bytes = static_cast<std::uint32_t>(bytes.size() - sizeof f);
    f.body_crc = Crc32c(bytes.data() + sizeof f, f.body_bytes, BodySeed(f.region, f.region_epoch));
    f.footer_crc = 0;
    f.footer_crc = Crc32c(&f, sizeof f, BodySeed(f.region, f.region_epoch));
    std::memcpy(bytes.data(), &f, sizeof f);
  }
  std::uint64_t epoch = 0;
  std::uint32_t visited = 0;
  const bool whole = DecodeIndexValue(fuzz::Salt(), fuzz::Place().region, bytes, &epoch, [&](const RecoveredRecord& record) {
    ++visited;
    FUZZ_CHECK(record.path.size() <= kMaxPathBytes);
  });
  FUZZ_CHECK(!whole || (visited == f.entries && epoch == f.region_epoch));
}

void SuperblockFile(std::string bytes, bool repair) {
  bytes.resize(std::max<std::size_t>(bytes.size(), repair ? kSuperblockBytes : 0));
  if (repair) {
    bytes.resize(kSuperblockBytes);
    const std::uint32_t crc = Crc32c(bytes.data(), kSuperblockBytes - sizeof(std::uint32_t));
    std::memcpy(bytes.data() + kSuperblockBytes - sizeof crc, &crc, sizeof crc);
  }
  Superblock superblock;
  if (DecodeSuperblock(bytes, &superblock) != SuperblockCheck::kOk) return;
  FUZZ_CHECK(superblock.region_bytes > 0 && superblock.regions_per_file > 0 && superblock.dataset_generations.size() <= kMaxDatasets);
  Superblock again;
  FUZZ_CHECK(DecodeSuperblock(EncodeSuperblock(superblock), &again) == SuperblockCheck::kOk);
  FUZZ_CHECK(again.lives == superblock.lives && again.dataset_generations == superblock.dataset_generations);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto which = input.Take<std::uint8_t>();
  const bool repair = (input.Take<std::uint8_t>() & 1) != 0;
  std::string bytes(fuzz::Text(input.Rest()));
  switch (which % 4) {
    case 0: Header(std::move(bytes), repair); break;
    case 1: Toc(std::move(bytes), repair); break;
    case 2: IndexValue(std::move(bytes), repair); break;
    default: SuperblockFile(std::move(bytes), repair); break;
  }
  return 0;
}
