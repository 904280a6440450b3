#include "tierd/ssd/region_toc.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace tierd::ssd {
namespace {

constexpr std::uint32_t kRegionBytes = 65536;
constexpr std::uint64_t kEpoch = 77;

RecordSalt Salt() {
  RecordSalt salt;
  salt.uuid[0] = 9;
  salt.secret = {5, 6, 7, 8};
  return salt;
}

RecoveredRecord RecordNumber(std::uint32_t i, const std::string& path) {
  RecoveredRecord r;
  r.identity = {1 + i % 2, 2, 3, {i + 1, i + 2}, {i, 100, -5, 7}, i % 3, 4096, 1000 + i};
  r.location = {1000 + i, 5, static_cast<std::uint32_t>(kEpoch), EncodePlace(i * 256, 192), 50 + i};
  r.path = path;
  return r;
}

struct Built {
  std::vector<std::byte> region = std::vector<std::byte>(kRegionBytes);
  std::vector<std::string> paths;
  std::uint32_t start = 0;
};

Built Build(std::uint32_t count) {
  Built out;
  TocBuilder toc;
  toc.Reset(5, kEpoch);
  for (std::uint32_t i = 0; i < count; ++i) {
    out.paths.push_back("train/class" + std::to_string(i / 4) + "/image" + std::to_string(i));
    const RecoveredRecord r = RecordNumber(i, out.paths.back());
    EXPECT_TRUE(toc.Add(r.identity, r.location, r.path));
  }
  const std::uint32_t predicted = toc.BytesWith(40, 512);
  out.start = toc.Finish(Salt(), count * 256, 512, out.region);
  EXPECT_LE(kRegionBytes - out.start, predicted);
  return out;
}

std::optional<TocFooter> FooterOf(std::span<const std::byte> region) { return DecodeFooter(Salt(), 5, kRegionBytes, region.last(sizeof(TocFooter))); }

bool Decode(std::span<const std::byte> region, const RecordVisitor& visit) {
  const auto footer = FooterOf(region);
  return footer && DecodeToc(Salt(), *footer, region.subspan(footer->body_offset, footer->body_bytes), visit);
}

TEST(RegionToc, ReturnsItsRecords) {
  const Built built = Build(37);
  std::uint32_t i = 0;
  ASSERT_TRUE(Decode(built.region, [&](const RecoveredRecord& r) {
    const RecoveredRecord want = RecordNumber(i, built.paths[i]);
    EXPECT_EQ(r.identity, want.identity);
    EXPECT_EQ(r.location, want.location);
    EXPECT_EQ(r.path, want.path);
    ++i;
  }));
  EXPECT_EQ(i, 37u);
  EXPECT_EQ(FooterOf(built.region)->records_end, 37u * 256);
}

TEST(RegionToc, IsVisitedInPieces) {
  TocBuilder toc;
  toc.Reset(5, kEpoch);
  std::vector<std::string> paths;
  for (std::uint32_t i = 0; i < 10; ++i) {
    paths.push_back("train/class" + std::to_string(i / 4) + "/image" + std::to_string(i));
    ASSERT_TRUE(toc.Add(RecordNumber(i, paths[i]).identity, RecordNumber(i, paths[i]).location, paths[i]));
  }
  TocCursor cursor;
  std::uint32_t seen = 0;
  const auto visit = [&](const RecoveredRecord& r) {
    EXPECT_EQ(r.location, RecordNumber(seen, "").location);
    EXPECT_EQ(r.path, paths[seen]);
    EXPECT_EQ(cursor.entry, ++seen);
  };
  EXPECT_TRUE(toc.VisitSome(cursor, 4, visit));
  EXPECT_EQ(seen, 4u);
  EXPECT_TRUE(toc.VisitSome(cursor, 5, visit));
  EXPECT_EQ(seen, 9u);
  EXPECT_FALSE(toc.VisitSome(cursor, 5, visit));
  EXPECT_EQ(seen, 10u);
  EXPECT_FALSE(toc.VisitSome(cursor, 5, visit));
}

TEST(RegionToc, NoticesEveryFlippedByte) {
  const Built built = Build(9);
  const auto footer = FooterOf(built.region);
  ASSERT_TRUE(footer);
  std::vector<std::byte> bad = built.region;
  const auto broken = [&](std::size_t at) {
    bad[at] ^= std::byte{0x10};
    const bool decoded = Decode(bad, [](const RecoveredRecord&) {});
    bad[at] ^= std::byte{0x10};
    return !decoded;
  };
  for (std::size_t at = footer->body_offset; at < footer->body_offset + footer->body_bytes; ++at) EXPECT_TRUE(broken(at)) << "body byte " << at;
  for (std::size_t at = kRegionBytes - sizeof(TocFooter); at < kRegionBytes; ++at) EXPECT_TRUE(broken(at)) << "footer byte " << at;
}

TEST(RegionToc, BelongsToItsRegion) {
  const Built built = Build(3);
  EXPECT_FALSE(DecodeFooter(Salt(), 6, kRegionBytes, std::span(built.region).last(sizeof(TocFooter))));
  RecordSalt other = Salt();
  other.secret[0] = 1;
  EXPECT_FALSE(DecodeFooter(other, 5, kRegionBytes, std::span(built.region).last(sizeof(TocFooter))));
}

TEST(RegionToc, IndexValueHoldsTheSameRecords) {
  TocBuilder toc;
  toc.Reset(5, kEpoch);
  const std::vector<std::string> paths{"some/where/file", "some/where/fort", "x"};
  for (std::uint32_t i = 0; i < paths.size(); ++i) ASSERT_TRUE(toc.Add(RecordNumber(i, paths[i]).identity, RecordNumber(i, paths[i]).location, paths[i]));
  const std::string value = toc.EncodeIndexValue(Salt());
  std::uint64_t epoch = 0;
  std::uint32_t seen = 0;
  ASSERT_TRUE(DecodeIndexValue(Salt(), 5, value, &epoch, [&](const RecoveredRecord& r) {
    EXPECT_EQ(r.identity, RecordNumber(seen, "").identity);
    EXPECT_EQ(r.location, RecordNumber(seen, "").location);
    EXPECT_EQ(r.path, paths[seen]);
    ++seen;
  }));
  EXPECT_EQ(seen, 3u);
  EXPECT_EQ(epoch, kEpoch);
  const auto holds = [&](std::uint32_t region, const std::string& bytes) { return DecodeIndexValue(Salt(), region, bytes, &epoch, [](const RecoveredRecord&) {}); };
  EXPECT_FALSE(holds(6, value));
  for (std::size_t bit = 0; bit < value.size() * 8; ++bit) {
    std::string bad = value;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(holds(5, bad)) << "bit " << bit;
  }
  for (std::size_t n = 0; n < value.size(); ++n) EXPECT_FALSE(holds(5, value.substr(0, n)));
}

}  // namespace
}  // namespace tierd::ssd
