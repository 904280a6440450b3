// Parts of long records: what the device is asked for, and what is made of damage.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/ssd/tier_fixture.h"
#include "tierd/ssd/parts_cache.h"

namespace tierd::ssd {
namespace {

constexpr std::uint32_t kMiB = 1u << 20;
constexpr std::uint32_t kPart = 16384;

class ReadPartsTest : public testing::Test {
 protected:
  ReadPartsTest() {
    options.region_bytes = 4 * kMiB;
    options.write_unit_bytes = 256u << 10;
    options.capacity_bytes = 8 * options.region_bytes;
    options.region_buffers = 2;
  }
  void Start() {
    life = std::make_unique<Life>(options);
    ASSERT_TRUE(life->Start().status.ok());
  }
  // `long` and enough behind it that it is in no buffer any more.
  void Fill() {
    ASSERT_TRUE(life->Put("long", 1, kBytes).ok());
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(life->Put("more" + std::to_string(i), 1, kBytes).ok());
    life->Settle();
    life->io.read_log.clear();
  }
  struct Got {
    ReadResult result;
    std::vector<std::byte> bytes;
  };
  Got Read(PayloadRange wanted, const Item& item) {
    const PayloadRange range = WidenToParts(item.location.stored_bytes, wanted);
    io::AlignedBuffer frame(AlignUp(range.bytes, 4096));
    std::memset(frame.data(), 0xee, frame.size());
    Got got;
    bool done = false;
    const Status accepted = life->tier->ReadParts(item.location, item.identity, range, frame.span(), [&](const ReadResult& r) {
      got.result = r;
      done = true;
    });
    EXPECT_TRUE(accepted.ok()) << accepted.ToString();
    if (!accepted.ok()) return got;
    EXPECT_TRUE(life->RunUntil([&] { return done; }));
    got.bytes.assign(frame.data(), frame.data() + range.bytes);
    return got;
  }
  void ExpectRight(PayloadRange wanted) {
    const Item& item = life->items.at({"long", 0});
    const Got got = Read(wanted, item);
    ASSERT_EQ(got.result.outcome, ReadOutcome::kOk);
    const PayloadRange range = WidenToParts(kBytes, wanted);
    EXPECT_EQ(got.result.bytes, range.bytes);
    const std::vector<std::byte> all = ContentOf("long", 1, 0, kBytes);
    EXPECT_EQ(std::memcmp(got.bytes.data(), all.data() + range.begin, range.bytes), 0) << wanted.begin;
  }
  // Where a byte of the payload is in the first region file.
  std::uint64_t PlaceOf(const SsdLocation& at, std::uint32_t offset) const { return std::uint64_t{at.region} * options.region_bytes + at.offset() + at.header_bytes() + offset; }
  void Flip(std::uint64_t at) {
    const int fd = ::open((options.directory + "/regions-0000").c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    char byte;
    ASSERT_EQ(::pread(fd, &byte, 1, static_cast<off_t>(at)), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(::pwrite(fd, &byte, 1, static_cast<off_t>(at)), 1);
    ::close(fd);
  }

  static constexpr std::uint32_t kBytes = kMiB + 5000;
  TempDirectory dir;
  SsdOptions options = SmallOptions(dir.path() + "/c");
  std::unique_ptr<Life> life;
};

TEST_F(ReadPartsTest, OneReadOfJustThemAndOneOfTheHeaderOnce) {
  Start();
  Fill();
  const SsdLocation at = life->items.at({"long", 0}).location;
  ExpectRight({100'000, 10});
  ExpectRight({300'000, 40'000});
  ExpectRight({0, 1});
  ExpectRight({kMiB, 5000});  // the last part is a short one
  using Log = std::vector<std::pair<std::uint64_t, std::size_t>>;
  const auto place = [&](std::uint32_t part) { return PlaceOf(at, part * kPart); };
  const std::uint64_t header = PlaceOf(at, 0) - at.header_bytes();
  const std::size_t last = AlignUp(5000, life->tier->status().record_alignment);
  EXPECT_EQ(life->io.read_log, (Log{{header, at.header_bytes()}, {place(6), kPart}, {place(18), 3 * kPart}, {place(0), kPart}, {place(64), last}}));
}

TEST_F(ReadPartsTest, FromTheBufferOfARegionThatIsBeingFilled) {
  Start();
  ASSERT_TRUE(life->Put("long", 1, kBytes).ok());
  ExpectRight({500'000, 20'000});
  EXPECT_TRUE(life->io.read_log.empty());
}

TEST_F(ReadPartsTest, ADamagedPartIsSeenAndTheOthersAreStillGood) {
  Start();
  Fill();
  const Item item = life->items.at({"long", 0});
  Flip(PlaceOf(item.location, 5 * kPart + 77));
  EXPECT_EQ(Read({5 * kPart, 1}, item).result.outcome, ReadOutcome::kCorrupt);
  EXPECT_EQ(Read({4 * kPart, 3 * kPart}, item).result.outcome, ReadOutcome::kCorrupt);
  ExpectRight({4 * kPart, 1});
  ExpectRight({6 * kPart, 1});
  EXPECT_EQ(life->tier->counters().read_corrupt, 2u);
}

TEST_F(ReadPartsTest, ADamagedHeaderGivesNothing) {
  Start();
  Fill();
  const Item item = life->items.at({"long", 0});
  Flip(PlaceOf(item.location, 0) - item.location.header_bytes() + 200);
  EXPECT_EQ(Read({5 * kPart, 1}, item).result.outcome, ReadOutcome::kCorrupt);
}

// Another file's record at that place, with the very bytes.
TEST_F(ReadPartsTest, TheRecordHasToBeTheOneThatIsExpected) {
  Start();
  Fill();
  Item item = life->items.at({"long", 0});
  item.identity.version.ino ^= 1;
  EXPECT_EQ(Read({0, 1}, item).result.outcome, ReadOutcome::kMiss);
  // What is remembered of the right one's header does not help either: its checksums are another identity's.
  ExpectRight({0, 1});
  EXPECT_EQ(Read({0, 1}, item).result.outcome, ReadOutcome::kCorrupt);
}

TEST_F(ReadPartsTest, AnErrorOfTheDeviceIsOne) {
  Start();
  Fill();
  const Item item = life->items.at({"long", 0});
  life->io.fault = [](bool write, std::uint64_t) { return write ? IoFault{} : IoFault{.error = EIO}; };
  EXPECT_EQ(Read({0, 1}, item).result.outcome, ReadOutcome::kIoError);  // of the header
  life->io.fault = nullptr;
  ExpectRight({0, 1});
  life->io.fault = [](bool write, std::uint64_t) { return write ? IoFault{} : IoFault{.error = EIO}; };
  const Got got = Read({kPart, 1}, item);
  EXPECT_EQ(got.result.outcome, ReadOutcome::kIoError);
  EXPECT_EQ(got.result.error, EIO);
  EXPECT_EQ(life->tier->status().reads_in_flight, 0u);
}

TEST_F(ReadPartsTest, WhatIsNoRunOfPartsIsRefused) {
  Start();
  Fill();
  const Item& item = life->items.at({"long", 0});
  io::AlignedBuffer frame(2 * kPart);
  const auto read = [&](PayloadRange range, std::span<std::byte> dest) { return life->tier->ReadParts(item.location, item.identity, range, dest, [](const ReadResult&) { FAIL(); }).code(); };
  EXPECT_EQ(read({1, kPart}, frame.span()), Code::kInvalid);
  EXPECT_EQ(read({0, kPart - 1}, frame.span()), Code::kInvalid);
  EXPECT_EQ(read({0, 0}, frame.span()), Code::kInvalid);
  EXPECT_EQ(read({64 * kPart, kPart}, frame.span()), Code::kInvalid) << "beyond the payload";
  EXPECT_EQ(read({0, 2 * kPart}, frame.span().first(kPart)), Code::kInvalid) << "too short";
  EXPECT_EQ(read({0, kPart}, frame.span().subspan(8)), Code::kInvalid) << "not aligned";
}

TEST(PartsCache, TheOldestGoesFirst) {
  PartsCache cache(2);
  const auto at = [](std::uint32_t region) { return SsdLocation{1, region, 1, EncodePlace(64, 512), 5}; };
  const auto table = std::make_shared<const PartSums>();
  cache.Add(at(1), table);
  cache.Add(at(2), table);
  cache.Add(at(1), table);
  cache.Add(at(3), table);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.Find(at(1)), nullptr);
  EXPECT_NE(cache.Find(at(2)), nullptr);
  SsdLocation other_epoch = at(2);
  other_epoch.epoch = 2;
  EXPECT_EQ(cache.Find(other_epoch), nullptr);
}

}  // namespace
}  // namespace tierd::ssd
