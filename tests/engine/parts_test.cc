// A little of a large file at a time, here and there, while RAM is full: what of the SSD's record is read, and of the source.
#include "tests/engine/parts_fixture.h"

namespace tierd::engine {
namespace {

TEST_F(PartsTest, OnlyWhatIsNeededIsRead) {
  Start();
  const std::uint32_t chunk = out_[0];
  const Answer one = FetchPart(chunk, 100'000, 4096);
  ExpectHas(one, chunk, 100'000, 4096);
  EXPECT_EQ(one.reply.begin, 6 * kPart);
  EXPECT_EQ(one.reply.length, kPart);
  EXPECT_EQ(one.tier(), abi::Tier::kSsd);
  EXPECT_EQ(DeviceBytes() - device_bytes_, HeaderBytes(chunk) + kPart);
  ExpectHas(FetchPart(chunk, 3'000'000, 110'000), chunk, 3'000'000, 110'000);
  EXPECT_EQ(DeviceBytes() - device_bytes_, HeaderBytes(chunk) + kPart + 7 * kPart) << "the header is remembered";
  EXPECT_FALSE(ChunkInRam(chunk));
  EXPECT_EQ(engine().counters().transit_frames - transit_, 2u);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), source_opens_);
  // The last one of the file, which ends in the middle of a part.
  const std::uint32_t end = kChunk - 1000;
  if (!ChunkInRam(kChunks - 1)) ExpectHas(FetchPart(kChunks - 1, end - 10, 10), kChunks - 1, end - 10, 10);
}

TEST_F(PartsTest, WhatRamHasIsGivenWhole) {
  Start();
  std::uint32_t chunk = 0;
  while (!ChunkInRam(chunk)) ++chunk;
  ASSERT_LT(chunk, kChunks - 1);
  const Answer answer = FetchPart(chunk, 100'000, 4096);
  ExpectHas(answer, chunk, 0, kChunk);
  EXPECT_EQ(answer.tier(), abi::Tier::kRam);
}

TEST_F(PartsTest, HalfOfAChunkIsReadAsAllOfIt) {
  Start();
  const Answer answer = FetchPart(out_[0], 10, kChunk / 2);
  EXPECT_EQ(answer.reply.begin, 0u);
  ExpectHas(answer, out_[0], 0, kChunk);
  ExpectHas(FetchPart(out_[1], 0, 4096, abi::kFetchSequential), out_[1], 0, kChunk);
}

TEST_F(PartsTest, WhatIsNotWithinTheChunkIsReadAsAllOfIt) {
  Start();
  for (const auto& [begin, bytes] : {std::pair{kChunk - 10, 11u}, std::pair{~std::uint32_t{0}, 2u}, std::pair{kChunk, 1u}}) {
    ExpectHas(FetchPart(out_[0], begin, bytes), out_[0], 0, kChunk);
  }
}

// Each has a frame of its own, and waits for no other.
TEST_F(PartsTest, ManyPartsOfAChunkAreReadAtATime) {
  Start();
  const std::uint32_t chunk = out_[0];
  ssd_io_.Hold(io::Step::kReadv);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> asked;
  for (std::uint32_t i = 0; i < 20; ++i) asked.emplace_back(AskPart(chunk, i * 200'000, 1000), i * 200'000);
  asked.emplace_back(AskPart(chunk, 5, 1000), 5);  // joins the first
  EXPECT_EQ(engine().counters().transit_frames - transit_, 20u);
  ssd_io_.Release();
  for (const auto& [id, begin] : asked) ExpectHas(Await(id), chunk, begin, 1000);
  EXPECT_LE(DeviceBytes() - device_bytes_, 20 * (HeaderBytes(chunk) + 2 * kPart));
}

TEST_F(PartsTest, WhoWantsAllOfItGetsItBesideThem) {
  Start();
  const std::uint32_t chunk = out_[0];
  ssd_io_.Hold(io::Step::kReadv);
  const std::uint64_t part = AskPart(chunk, 200'000, 1000);
  const std::uint64_t all = Ask(name_, abi::FetchOp::kChunk, chunk);
  const std::uint64_t late = AskPart(chunk, 900'000, 1000);  // joins the whole
  ssd_io_.Release();
  ExpectHas(Await(part), chunk, 200'000, 1000);
  ExpectHas(Await(all), chunk, 0, kChunk);
  ExpectHas(Await(late), chunk, 0, kChunk);
}

// Small pieces in order: ever longer runs, each read once.
TEST_F(PartsTest, WhoReadsOnGetsMoreAtATime) {
  Start();
  const std::uint32_t chunk = out_[0];
  LeaseChunk(chunk);
  for (std::uint32_t at = 0; at < kChunk; at += 10'000) ExpectHas(FetchPart(chunk, at, std::min(10'000u, kChunk - at)), chunk, at, std::min(10'000u, kChunk - at));
  EXPECT_LE(engine().counters().transit_frames - transit_, 16u);
  EXPECT_LE(DeviceBytes() - device_bytes_, kChunk + 16 * kPart + HeaderBytes(chunk));
}

TEST_F(PartsTest, AChangeIsNotOvertakenByAPart) {
  Start();
  const std::uint32_t chunk = out_[0];
  ssd_io_.Hold(io::Step::kReadv);
  const std::uint64_t id = AskPart(chunk, 200'000, 1000);
  EXPECT_EQ(Advise(abi::AdviseOp::kInvalidate, name_), 1u);
  ASSERT_TRUE(RunUntil([&] { return answers().contains(id); }));
  EXPECT_EQ(answers()[id].status(), abi::FetchStatus::kBypass);
  ssd_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle() && engine().ssd()->status().reads_in_flight == 0; }));
  EXPECT_FALSE(OnSsd(name_));
  (void)engine().ram().ReclaimLimbo(4096);
  EXPECT_EQ(engine().ram().limbo_frames(), 0u) << "its frame came back";
}

TEST_F(PartsTest, ADamagedPartIsReadFromTheSource) {
  Start();
  const std::uint32_t chunk = out_[0];
  ASSERT_TRUE(Damage(content_.substr(std::size_t{chunk} * kChunk + 200'000, 64)));
  ExpectHas(FetchPart(chunk, 200'000, 1000), chunk, 200'000, 1000);
  EXPECT_EQ(engine().counters().integrity_ssd, 1u);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), source_opens_ + 1);
}

// Who wants a part is told to read the source: asked again at once, the tier would refuse again.
TEST_F(PartsTest, WithoutMemoryForAPartTheRecordStays) {
  Start();
  const std::uint32_t chunk = out_[0];
  ssd_io_.Hold(io::Step::kReadv);
  std::vector<std::uint64_t> asked;
  for (std::uint32_t i = 0; i < 8; ++i) asked.push_back(AskPart(chunk, i * 200'000, 1000));
  ASSERT_TRUE(RunUntil([&] { return ssd_io_.waiting >= 4; }));
  const std::uint64_t reads = ssd_io_.count(io::Step::kReadv);
  ssd_io_.released_with = ENOMEM;
  ssd_io_.Release();
  int refused = 0;
  for (const std::uint64_t id : asked) {
    const Answer answer = Await(id);
    refused += answer.status() == abi::FetchStatus::kBypass && answer.reply.reason == static_cast<std::uint8_t>(abi::Fallback::kNoFrame) ? 1 : 0;
  }
  EXPECT_GE(refused, 4);
  EXPECT_LE(ssd_io_.count(io::Step::kReadv), reads + 2 * asked.size());
  EXPECT_TRUE(engine().placement().OnSsd(ObjectOf(name_, chunk)));
  EXPECT_EQ(engine().counters().ssd_read_errors, 0u);
  EXPECT_EQ(engine().ssd()->health(), ssd::SsdHealth::kHealthy);
  ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));
  (void)engine().ram().ReclaimLimbo(4096);
  EXPECT_EQ(engine().ram().limbo_frames(), 0u) << "its frame came back";
}

// However many parts of it are under way: one bad record is one fault of the device, and what was written in its place is left alone.
TEST_F(PartsTest, ADamagedRecordIsOneFault) {
  Start();
  const std::uint32_t chunk = out_[0];
  ASSERT_TRUE(Damage(content_.substr(std::size_t{chunk} * kChunk + 200'000, 64)));
  ssd_io_.Hold(io::Step::kReadv);
  std::vector<std::uint64_t> asked;
  for (std::uint32_t i = 0; i < 20; ++i) asked.push_back(AskPart(chunk, 197'000, 100 + i * kPart));  // runs of their own keys would join
  for (std::uint32_t i = 0; i < 12; ++i) asked.push_back(AskPart(chunk, 197'000 - i * kPart, 12 * kPart));
  ssd_io_.Release();
  for (const std::uint64_t id : asked) {  // a frame of what the source has, or, from a busy machine, the advice to ask it
    const Answer answer = Await(id);
    EXPECT_TRUE(answer.status() == abi::FetchStatus::kFrame || answer.status() == abi::FetchStatus::kBypass) << int{answer.reply.status};
    if (answer.status() == abi::FetchStatus::kFrame) ExpectHas(answer, chunk, 197'000, 100);
  }
  EXPECT_EQ(engine().counters().integrity_ssd, 1u);
  EXPECT_EQ(engine().ssd()->status().health, ssd::SsdHealth::kHealthy);
}

// Each of them gets longer runs, in one chunk.
TEST_F(PartsTest, SomeWhoReadOnBesideOneAnother) {
  Start();
  const std::uint32_t chunk = out_[0];
  LeaseChunk(chunk);
  for (std::uint32_t at = 0; at < kChunk / 4; at += 8192) {
    for (std::uint32_t quarter = 0; quarter < 4; ++quarter) ExpectHas(FetchPart(chunk, quarter * kChunk / 4 + at, 8192), chunk, quarter * kChunk / 4 + at, 8192);
  }
  EXPECT_LE(engine().counters().transit_frames - transit_, 40u);
  EXPECT_LE(DeviceBytes() - device_bytes_, 2 * kChunk);
}

// Who reads on brings all of it soon, if RAM takes it.
TEST_F(PartsTest, WhoReadsOnIsWorthTheRoom) {
  source_options().policy = "lru";
  Start();
  const std::uint32_t chunk = out_[0];
  std::uint32_t at = 0;
  for (; !ChunkInRam(chunk) && at < kChunk / 4; at += 8192) ExpectHas(FetchPart(chunk, at, 8192), chunk, at, 8192);
  EXPECT_LT(at, kChunk / 8);
  EXPECT_LE(DeviceBytes() - device_bytes_, kChunk + kChunk / 8 + 2 * HeaderBytes(chunk));
}

// A hung device holds readers up no longer than their deadline, and each part's frame until it answers.
TEST_F(PartsTest, AHungPartIsGivenUp) {
  source_options().demand_timeout_ms = 500;
  Start();
  const std::uint32_t chunk = out_[0];
  ssd_io_.Hold(io::Step::kReadv);
  const std::uint64_t id = AskPart(chunk, 200'000, 1000);
  EXPECT_EQ(Await(id).status(), abi::FetchStatus::kBypass);
  ssd_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return engine().ssd()->status().reads_in_flight == 0 && engine().fetcher().idle(); }));
  EXPECT_EQ(engine().fetcher().hung_frames(), 0u);
}

// `lru` admits everything: for a little nobody leaves, until a quarter of the chunk was asked for.
TEST_F(PartsTest, NobodyLeavesForALittle) {
  source_options().policy = "lru";
  Start();
  const std::uint32_t chunk = out_[0];
  const auto evicted = [&] { return engine().counters().evicted_bytes[TIERD_TIER_RAM]; };
  const std::uint64_t before = evicted();
  std::uint32_t asked = 0;
  for (std::uint32_t i = 0; !ChunkInRam(chunk); ++i) {
    ASSERT_LT(i, 100u);
    ExpectHas(FetchPart(chunk, (i * 37 % 64) * 4 * kPart, 2 * kPart), chunk, (i * 37 % 64) * 4 * kPart, 2 * kPart);
    EXPECT_TRUE(ChunkInRam(chunk) || evicted() == before);
    asked += 2 * kPart;
  }
  EXPECT_GE(asked, kChunk / 4);
  EXPECT_GT(evicted(), before);
}

// Without an SSD tier all of a chunk would pass through for a little and be lost.
TEST_F(PartsTest, WithoutSsdALittleIsTheReadersOwnBusiness) {
  options_.ssd.directory.clear();
  source_options().policy = "lru";
  StartEngine();
  ASSERT_NO_FATAL_FAILURE(FillRam());
  std::uint32_t chunk = 1;
  while (ChunkInRam(chunk)) ++chunk;
  const std::uint64_t read = unit().reader->counters().bytes_read;
  EXPECT_EQ(FetchPart(chunk, 200'000, 1000).status(), abi::FetchStatus::kBypass);
  EXPECT_EQ(unit().reader->counters().bytes_read, read);
  for (int i = 0; i < 3; ++i) (void)FetchPart(chunk, 200'000, kChunk / 8);
  EXPECT_TRUE(ChunkInRam(chunk)) << "by now it is worth the room";
}

}  // namespace
}  // namespace tierd::engine
