#include "tierd/ssd/region_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

constexpr std::uint32_t kRegionBytes = 131072;
constexpr std::uint32_t kRegion = 4;

ScanFormat Format() {
  ScanFormat format;
  format.salt.uuid[0] = 1;
  format.salt.secret = {11, 12, 13, 14};
  format.alignment = 512;
  format.region_bytes = kRegionBytes;
  return format;
}

// Writes records into an image as the writer does.
class ImageWriter {
 public:
  explicit ImageWriter(std::uint64_t epoch, std::vector<std::byte> onto = std::vector<std::byte>(kRegionBytes)) : image(std::move(onto)), epoch_(epoch) {}

  void Add(const std::string& path, std::size_t bytes) { AddContent(path, ContentOf(path, epoch_, 0, bytes)); }
  void AddContent(const std::string& path, std::span<const std::byte> content) {
    const ScanFormat format = Format();
    const RecordGeometry geometry = GeometryFor(512);
    const auto bytes = static_cast<std::uint32_t>(content.size());
    const std::uint32_t start = AlignUp(fill, geometry.AlignmentOf(bytes));
    std::memset(image.data() + fill, 0, start - fill);
    RecordIdentity id;
    id.key = KeyOfPath(path);
    id.version.size = bytes;
    id.chunk_bytes = 1u << 20;
    id.fill_sequence = ++fills;
    EncodeHeader(format.salt, geometry, {kRegion, start, epoch_, previous_end}, {id, path, bytes, PayloadCrc(format.salt, id, content)},
                 image.data() + start);
    std::memcpy(image.data() + start + HeaderBytes(geometry, bytes, path.size()), content.data(), bytes);
    fill = previous_end = start + RecordBytes(geometry, bytes, path.size());
    ends.push_back(fill);
  }
  // As a flush of a part does.
  void SkipToBlock() { fill = AlignUp(fill, 512); }

  std::vector<std::byte> image;
  std::uint32_t fill = 0;
  std::uint32_t previous_end = 0;
  std::uint64_t fills = 0;
  std::vector<std::uint32_t> ends;

 private:
  std::uint64_t epoch_;
};

struct Seen {
  std::vector<std::string> paths;
  WalkResult result;
};
Seen Walk(std::span<const std::byte> image) {
  Seen seen;
  seen.result = WalkRegion(Format(), kRegion, image, true, [&](const RecoveredRecord& r, bool sound) {
    if (sound) seen.paths.emplace_back(r.path);
  });
  return seen;
}

TEST(RegionScan, WalksPackedDirectAndFlushedRecords) {
  ImageWriter w(7);
  w.Add("a", 100);
  w.Add("b", 20'000);  // direct: starts at the next block
  w.Add("c", 5);
  w.SkipToBlock();
  w.Add("d", 6);
  w.Add("e", 7);
  const Seen seen = Walk(w.image);
  EXPECT_EQ(seen.paths, (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(seen.result.epoch, 7u);
  EXPECT_EQ(seen.result.records_end, w.fill);
}

TEST(RegionScan, EmptyRegionHasNothing) {
  EXPECT_EQ(Walk(std::vector<std::byte>(kRegionBytes)).result.records, 0u);  // F14: zero-filled
}

// F11: whatever prefix of a region reached the device, only whole records are found.
TEST(RegionScan, TornAtEveryPrefix) {
  ImageWriter w(7);
  for (int i = 0; i < 6; ++i) w.Add("file" + std::to_string(i), i % 2 == 0 ? 300 + i : 17'000);
  for (std::uint32_t cut = 0; cut <= w.fill; cut += (cut % 64 == 0 ? 1 : 63)) {
    std::vector<std::byte> torn(kRegionBytes);
    std::memcpy(torn.data(), w.image.data(), cut);
    const Seen seen = Walk(torn);
    std::size_t whole = 0;
    // The zeros behind the last payload byte are not missed when they are cut: they are zeros.
    while (whole < w.ends.size() && w.ends[whole] <= cut) ++whole;
    EXPECT_GE(seen.paths.size(), whole) << "cut at " << cut;
    EXPECT_LE(seen.paths.size(), whole + 1) << "cut at " << cut;
    for (std::size_t i = 0; i < seen.paths.size(); ++i) EXPECT_EQ(seen.paths[i], "file" + std::to_string(i));
  }
}

// HAZARDS 2.16 a: the tail of a region that was reused half-way holds intact records of its former life.
TEST(RegionScan, StopsAtRecordsOfTheFormerLife) {
  ImageWriter old(7);
  for (int i = 0; i < 8; ++i) old.Add("old" + std::to_string(i), 1000);
  ImageWriter young(8, old.image);
  for (int i = 0; i < 3; ++i) young.Add("new" + std::to_string(i), 1000);
  EXPECT_EQ(Walk(young.image).paths, (std::vector<std::string>{"new0", "new1", "new2"}));
  // And when the first block of the new life never came: the old life up to where it was overwritten.
  std::vector<std::byte> headless = young.image;
  std::memcpy(headless.data(), old.image.data(), 512);
  EXPECT_TRUE(Walk(headless).paths.empty()) << "the first record's payload is half overwritten, the second is of another epoch";
}

TEST(RegionScan, DamagedHeaderEndsTheWalkAndDamagedPayloadDoesNot) {
  ImageWriter w(7);
  for (int i = 0; i < 5; ++i) w.Add("f" + std::to_string(i), 1000);
  std::vector<std::byte> image = w.image;
  image[w.ends[1] + 300] ^= std::byte{1};  // payload of f2
  Seen seen = Walk(image);
  EXPECT_EQ(seen.paths, (std::vector<std::string>{"f0", "f1", "f3", "f4"}));
  EXPECT_EQ(seen.result.damaged, 1u);
  image = w.image;
  image[w.ends[1] + 20] ^= std::byte{1};  // header of f2
  EXPECT_EQ(Walk(image).paths, (std::vector<std::string>{"f0", "f1"}));
}

// HAZARDS 2.16 e: a file that contains a record is a file. Even one that was copied from this very directory.
TEST(RegionScan, RecordInsideAPayloadIsNotFound) {
  ImageWriter inner(7);
  inner.Add("forged", 600);
  ImageWriter w(7);
  w.Add("first", 100);
  w.AddContent("carrier", std::span(inner.image).first(4096));
  w.Add("last", 100);
  EXPECT_EQ(Walk(w.image).paths, (std::vector<std::string>{"first", "carrier", "last"}));
  // The carrier's own header is gone: nothing behind it is believed, least of all what it carries.
  std::vector<std::byte> image = w.image;
  image[w.ends[0]] ^= std::byte{1};
  EXPECT_EQ(Walk(image).paths, (std::vector<std::string>{"first"}));
}

// A record that is sound at its place is none at another one (F13), nor behind another predecessor.
TEST(RegionScan, SwappedRecordsAreNotBelieved) {
  ImageWriter w(7);
  for (int i = 0; i < 4; ++i) w.Add("f" + std::to_string(i), 1000);
  std::vector<std::byte> image = w.image;
  const std::uint32_t size = w.ends[1] - w.ends[0];
  std::swap_ranges(image.begin() + w.ends[0], image.begin() + w.ends[0] + size, image.begin() + w.ends[1]);
  EXPECT_EQ(Walk(image).paths, (std::vector<std::string>{"f0"}));
}

// Each record by itself, whatever became of those before it; no other one in its place.
TEST(RegionScan, SoundRecordsAreThoseThatAreWhereTheyAreListed) {
  ImageWriter w(7);
  for (int i = 0; i < 5; ++i) w.Add("f" + std::to_string(i), 1000);
  RecordBatch listed;
  (void)WalkRegion(Format(), kRegion, w.image, false, [&](const RecoveredRecord& r, bool) { listed.Add(r); });
  ASSERT_EQ(listed.size(), 5u);
  const auto sound = [&](std::span<const std::byte> image, std::uint64_t epoch) { return SoundRecords(Format(), epoch, image, listed.records()); };
  EXPECT_EQ(sound(w.image, 7), std::vector<bool>(5, true));
  EXPECT_EQ(sound(w.image, 8), std::vector<bool>(5, false));
  std::vector<std::byte> image = w.image;
  image[20] ^= std::byte{1};               // header of f0
  image[w.ends[1] + 300] ^= std::byte{1};  // payload of f2
  EXPECT_EQ(sound(image, 7), (std::vector<bool>{false, true, false, true, true}));
  const std::uint32_t size = w.ends[1] - w.ends[0];
  image = w.image;
  std::swap_ranges(image.begin() + w.ends[0], image.begin() + w.ends[0] + size, image.begin() + w.ends[1]);
  EXPECT_EQ(sound(image, 7), (std::vector<bool>{true, false, false, true, true}));
  EXPECT_EQ(sound(std::span(w.image).first(w.ends[2]), 7), (std::vector<bool>{true, true, true, false, false}));
}

TEST(RegionScan, BatchKeepsItsPaths) {
  RecordBatch batch;
  for (int i = 0; i < 3000; ++i) {
    const std::string path(static_cast<std::size_t>(i % 200), static_cast<char>('a' + i % 26));
    RecoveredRecord r;
    r.path = path;
    batch.Add(r);
  }
  for (int i = 0; i < 3000; ++i) {
    EXPECT_EQ(batch.records()[static_cast<std::size_t>(i)].path, std::string(static_cast<std::size_t>(i % 200), static_cast<char>('a' + i % 26)));
  }
}

}  // namespace
}  // namespace tierd::ssd
