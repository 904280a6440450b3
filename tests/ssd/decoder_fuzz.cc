#include "tests/ssd/decoder_fuzz.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tierd/base/check.h"
#include "tierd/base/crc32c.h"
#include "tierd/ssd/region_scan.h"
#include "tierd/ssd/superblock.h"

namespace tierd::ssd {

namespace {

constexpr std::uint32_t kRegionBytes = 65536;
constexpr std::uint32_t kRegion = 3;

ScanFormat Format() {
  ScanFormat format;
  format.salt.secret = {1, 2, 3, 4};
  format.alignment = 512;
  format.region_bytes = kRegionBytes;
  return format;
}

// Turns the bytes at `at` into a header that passes its checksum, keeping all lengths as they come.
void SealHeader(std::vector<std::byte>& image, std::size_t at) {
  if (at + sizeof(RecordHeader) > image.size()) return;
  RecordHeader h;
  std::memcpy(&h, image.data() + at, sizeof(h));
  h.magic = kRecordMagic;
  h.format = kFormat;
  h.uuid = Format().salt.uuid;
  h.region = kRegion;
  h.region_epoch = 9;
  h.offset = static_cast<std::uint32_t>(at);
  h.header_crc = 0;
  std::memcpy(image.data() + at, &h, sizeof(h));
  if (h.header_bytes < sizeof(h) || h.header_bytes > image.size() - at) return;
  const std::uint32_t crc = Crc32c(image.data() + at, h.header_bytes, IdentitySeed(Format().salt, h.identity));
  std::memcpy(image.data() + at + offsetof(RecordHeader, header_crc), &crc, sizeof(crc));
}

int Walk(std::vector<std::byte> image) {
  // Each header that the walk would come to is sealed before it gets there.
  std::size_t at = 0;
  for (int i = 0; i < 64 && at + sizeof(RecordHeader) <= image.size(); ++i) {
    SealHeader(image, at);
    RecordHeader h;
    std::memcpy(&h, image.data() + at, sizeof(h));
    if (h.record_bytes == 0 || h.record_bytes > image.size()) break;
    at += h.record_bytes;
  }
  int records = 0;
  const WalkResult result = WalkRegion(Format(), kRegion, image, true, [&](const RecoveredRecord& r, bool) {
    TIERD_CHECK(std::uint64_t{r.location.offset()} + r.location.header_bytes() + r.location.stored_bytes <= image.size());
    TIERD_CHECK(r.path.size() <= kMaxPathBytes);
    ++records;
  });
  TIERD_CHECK(result.records_end <= image.size());
  return records > 0 ? 1 : 0;
}

int Toc(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(TocFooter)) return 0;
  const std::uint64_t words[] = {kTocMagic, kRegion, 9};
  const std::uint32_t seed = WordsSeed(Format().salt, words);
  const std::span<const std::byte> body = bytes.first(bytes.size() - sizeof(TocFooter));
  TocFooter footer;
  std::memcpy(&footer, bytes.data() + body.size(), sizeof(footer));
  footer.magic = kTocMagic;
  footer.format = kFormat;
  footer.uuid = Format().salt.uuid;
  footer.region = kRegion;
  footer.region_epoch = 9;
  footer.body_bytes = static_cast<std::uint32_t>(body.size());
  footer.entries %= 64;
  footer.scopes %= 4;
  footer.body_crc = Crc32c(body.data(), body.size(), seed);
  footer.footer_crc = 0;
  footer.footer_crc = Crc32c(&footer, sizeof(footer), seed);
  const auto decoded = DecodeFooter(Format().salt, kRegion, kRegionBytes, std::as_bytes(std::span(&footer, 1)));
  if (!decoded) return 0;
  return DecodeToc(Format().salt, *decoded, body, [](const RecoveredRecord& r) { TIERD_CHECK(r.path.size() <= 2 * 65535u); }) ? 1 : 0;
}

int IndexValue(std::span<const std::byte> bytes) {
  std::string value(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::uint64_t epoch = 0;
  if (value.size() >= sizeof(epoch)) std::memcpy(&epoch, value.data(), sizeof(epoch));
  const std::uint64_t words[] = {kTocMagic, kRegion, epoch};
  const std::uint32_t crc = Crc32c(value.data(), value.size(), WordsSeed(Format().salt, words));
  value.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  RecoveredRecord record;
  return DecodeIndexValue(Format().salt, kRegion, value, &record, &epoch) ? 1 : 0;
}

int Super(std::span<const std::byte> bytes) {
  std::string file(kSuperblockBytes, '\0');
  std::memcpy(file.data(), bytes.data(), std::min(bytes.size(), file.size()));
  std::memcpy(file.data(), &kSuperblockMagic, sizeof(kSuperblockMagic));
  std::memcpy(file.data() + 8, &kFormat, sizeof(kFormat));
  const std::uint32_t crc = Crc32c(file.data(), file.size() - 4);
  std::memcpy(file.data() + file.size() - 4, &crc, sizeof(crc));
  Superblock out;
  const bool sealed = DecodeSuperblock(file, &out) == SuperblockCheck::kOk;
  const std::string_view raw(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return (sealed ? 1 : 0) + (DecodeSuperblock(raw, &out) == SuperblockCheck::kOk ? 1 : 0);
}

}  // namespace

int RunDecoders(std::span<const std::uint8_t> input) {
  const std::span<const std::byte> bytes = std::as_bytes(input);
  std::vector<std::byte> image(bytes.begin(), bytes.end());
  image.resize(std::min<std::size_t>(std::max<std::size_t>(image.size(), 4096), kRegionBytes));
  return Walk(std::move(image)) + Toc(bytes) + IndexValue(bytes) + Super(bytes);
}

}  // namespace tierd::ssd
