// Who may be answered with what was under way already: other chunks, other questions, readers who know of a change, racy bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/engine/engine_fixture.h"
#include "tierd/engine/fetch/invalidation_log.h"

namespace tierd::engine {
namespace {

class JoinTest : public EngineTest {
 protected:
  static constexpr std::uint32_t kChunk = 64 << 10;
  JoinTest() { source_options().chunk_bytes = kChunk; }

  void Rewrite(const std::string& name, const std::string& bytes) const {
    const int fd = ::open((tree_ / name).c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }
  // Changes the last of these bytes wherever the SSD has them; the engine is stopped.
  bool DamageOnSsd(const std::string& bytes) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache_.path())) {
      if (!entry.is_regular_file()) continue;
      std::string all(entry.file_size(), '\0');  // as one: regions are large, and a sanitizer takes a second for a million characters
      std::ifstream(entry.path(), std::ios::binary).read(all.data(), static_cast<std::streamsize>(all.size()));
      const std::size_t at = all.find(bytes);
      if (at == std::string::npos) continue;
      std::fstream out(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
      out.seekp(static_cast<std::streamoff>(at + bytes.size() - 1));
      out.put(static_cast<char>(bytes.back() ^ 1));
      return out.good();
    }
    return false;
  }
};

TEST_F(JoinTest, WhoJoinsADiscoveryGetsWhatItAskedFor) {
  const std::string bytes = Bytes("large", 3 * kChunk);
  const std::string name = Write("large", bytes);
  StartEngine();
  source_io_.Hold(io::Step::kStatBefore);
  const std::uint64_t first = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  const std::uint64_t stat = Ask(name, abi::FetchOp::kStat);
  const std::uint64_t third = Ask(name, abi::FetchOp::kChunk, 2);
  const std::uint64_t again = Ask(name);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().size() == 4; }));
  EXPECT_TRUE(answers()[first].bytes == bytes.substr(0, kChunk));
  EXPECT_TRUE(answers()[again].bytes == bytes.substr(0, kChunk));
  EXPECT_TRUE(answers()[third].bytes == bytes.substr(2 * kChunk)) << "same length, same version, another chunk";
  EXPECT_EQ(answers()[stat].status(), abi::FetchStatus::kMeta);
}

// RAM was to have no copy, and a reader comes while the bytes are on their way.
TEST_F(JoinTest, WhoJoinsAReadForTheSsdAloneGetsItsBytes) {
  UseSsd();
  const std::string bytes = Bytes("file", 40'000);
  const std::string name = Write("file", bytes);
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kStat).status(), abi::FetchStatus::kMeta) << "known, so that no discovery reads it";
  source_io_.Hold(io::Step::kRead);
  const std::uint64_t down = engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  const std::uint64_t asked = Ask(name);
  source_io_.Release();
  EXPECT_EQ(WaitForJob(down).verified_files, 1u);
  ASSERT_TRUE(RunUntil([&] { return answers().contains(asked); }));
  EXPECT_EQ(answers()[asked].status(), abi::FetchStatus::kFrame);
  EXPECT_TRUE(answers()[asked].bytes == bytes);
  EXPECT_EQ(source_io_.count(io::Step::kOpen), 1u);
}

// A reader has joined a prefetch from the SSD, and the record there is damaged: the source is read for somebody who waits.
TEST_F(JoinTest, WhoJoinsAPrefetchIsServedAsAReaderAlsoWhenItGoesToTheSource) {
  UseSsd();
  const std::string bytes = Bytes("file", 40'000);
  const std::string name = Write("file", bytes);
  StartEngine();
  const std::uint64_t down = engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
  engine().EndTurn();
  ASSERT_EQ(WaitForJob(down).verified_files, 1u);
  StopEngine();
  ASSERT_TRUE(DamageOnSsd(bytes));
  StartEngine();
  ssd_io_.Hold(io::Step::kReadv);
  engine().jobs().Prefetch({{&unit(), ""}}, {});
  engine().EndTurn();
  ASSERT_TRUE(RunUntil([&] { return ssd_io_.waiting == 1; }));
  const std::uint64_t asked = Ask(name);
  const auto before = unit().reader->counters().sent;
  ssd_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(asked); }));
  EXPECT_TRUE(answers()[asked].bytes == bytes);
  const auto after = unit().reader->counters().sent;
  EXPECT_EQ(after[static_cast<std::size_t>(source::Priority::kDemand)], before[static_cast<std::size_t>(source::Priority::kDemand)] + 1);
  EXPECT_EQ(after[static_cast<std::size_t>(source::Priority::kPrefetch)], before[static_cast<std::size_t>(source::Priority::kPrefetch)]);
}

TEST_F(JoinTest, WhatVerificationFindsDamagedIsDroppedAndCounted) {
  UseSsd();
  const std::string bytes = Bytes("file", 40'000);
  const std::string name = Write("file", bytes);
  StartEngine();
  ASSERT_EQ(WaitForJob(engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true})).verified_files, 1u);
  StopEngine();
  ASSERT_TRUE(DamageOnSsd(bytes));
  StartEngine();
  ASSERT_TRUE(OnSsd(name));
  EXPECT_EQ(WaitForJob(engine().jobs().VerifyRecords({})).files_failed, 1u);
  EXPECT_FALSE(OnSsd(name));
  EXPECT_EQ(engine().counters().integrity_ssd, 1u);
}

TEST_F(JoinTest, AnInvalidationReachesWhatIsUnderWay) {
  const std::string name = Write("file", Bytes("file", 5000, 1));
  StartEngine();
  source_io_.Hold(io::Step::kStatAfter);  // the bytes of version 1 have been read
  Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  Rewrite(name, Bytes(name, 5000, 2));
  Advise(abi::AdviseOp::kInvalidate, name);
  const std::uint64_t after = Ask(name);
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(after); }));
  EXPECT_EQ(answers()[after].status(), abi::FetchStatus::kFrame) << int{answers()[after].reply.reason};
  EXPECT_TRUE(answers()[after].bytes == Bytes(name, 5000, 2));
  // What the source is asked in the same tick of the clock as the invalidation may be older than it, and proves nothing.
  (void)HandlersIn(20);
  const Answer later = Fetch(name);
  EXPECT_TRUE(later.bytes == Bytes(name, 5000, 2)) << int(later.status()) << " " << int{later.reply.reason} << " " << later.bytes.size() << " bytes";
}

// The bytes are read, their confirmation is not asked for yet, and the change leaves the stamps as they are: a store through a mapping that is dirty already.
TEST_F(JoinTest, AnInvalidationReachesBytesThatAreConfirmedAfterIt) {
  const std::string name = Write("file", Bytes("file", 4096, 1));
  const int fd = ::open((tree_ / name).c_str(), O_RDWR | O_CLOEXEC);
  auto* const mapped = static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(mapped, MAP_FAILED);
  mapped[0] = 1;
  StartEngine();
  source_io_.Hold(io::Step::kRead);
  const std::uint64_t first = Ask(name);
  ASSERT_TRUE(RunUntil([&] { return source_io_.waiting == 1; }));
  mapped[0] = 2;
  Advise(abi::AdviseOp::kInvalidate, name);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the clock that stats are stamped with moves in steps
  source_io_.Release();
  ASSERT_TRUE(RunUntil([&] { return answers().contains(first); }));
  EXPECT_EQ(answers()[first].bytes.substr(0, 1), "\2");
  ::munmap(mapped, 4096);
  ::close(fd);
}

TEST_F(JoinTest, AnInvalidationOutlivesAStatFromBeforeIt) {
  const std::string name = Write("file", Bytes("file", 5000, 1));
  source_options().ttl_ms = 100;
  StartEngine();
  ASSERT_TRUE(Fetch(name).bytes == Bytes(name, 5000, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  source_io_.Hold(io::Step::kStatBefore);
  Ask(name, abi::FetchOp::kStat);
  RunUntil([&] { return source_io_.waiting == 1; }, 300);  // unless the refresher was faster
  Advise(abi::AdviseOp::kInvalidate, name);
  Rewrite(name, Bytes(name, 5000, 2));
  source_io_.Release();
  EXPECT_TRUE(Fetch(name).bytes == Bytes(name, 5000, 2));
}

TEST_F(JoinTest, PrefetchOfCachedChunksNeitherRecursesNorStalls) {
  source_options().chunk_bytes = 4096;
  const std::string name = Write("large", Bytes("large", 8'000 * 4096));
  StartEngine();
  for (int round = 0; round < 2; ++round) {
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), name}}, {});
    const JobStatus status = WaitForJob(job);
    EXPECT_EQ(status.verified_files, 1u) << round << ": " << status.files_no_room << " had no room, " << status.files_failed << " failed " << status.error;
  }
}

TEST_F(JoinTest, RacyBytesDoNotReachTheSsd) {
  UseSsd();
  source_options().racy_window_ms = 3'600'000;
  const std::string name = Write("young", Bytes("young", 5000));
  StartEngine();
  ASSERT_TRUE(Fetch(name).bytes == Bytes(name, 5000));
  EXPECT_TRUE(InRam(name));
  EXPECT_FALSE(OnSsd(name)) << "after a restart a stat would make it valid for good (HAZARDS 2.12)";
}

TEST_F(JoinTest, OneChunkReadLateDoesNotClearARacyFile) {
  source_options().racy_window_ms = 300;
  const std::string name = Write("young", Bytes("young", 2 * kChunk));
  StartEngine();
  ASSERT_EQ(Fetch(name, abi::FetchOp::kChunk, 0).status(), abi::FetchStatus::kFrame);
  ASSERT_NE(engine().catalogue().file(FileOf(name)).flags & kFileRacy, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  ASSERT_EQ(Fetch(name, abi::FetchOp::kChunk, 1).status(), abi::FetchStatus::kFrame);
  EXPECT_NE(engine().catalogue().file(FileOf(name)).flags & kFileRacy, 0);
}

TEST(InvalidationLog, CoversPathsBelowAndAfter) {
  InvalidationLog log;
  EXPECT_FALSE(log.Covers(0, "a", 0));
  log.Add(0, "a/b", false, 100);
  log.Add(0, "d", true, 200);
  EXPECT_TRUE(log.Covers(0, "a/b", 100));
  EXPECT_FALSE(log.Covers(0, "a/b", 101));
  EXPECT_FALSE(log.Covers(1, "a/b", 50)) << "another source";
  EXPECT_FALSE(log.Covers(0, "a/b/c", 50)) << "not recursive";
  EXPECT_TRUE(log.Covers(0, "d/e/f", 150));
  EXPECT_FALSE(log.Covers(0, "de", 150));
  EXPECT_TRUE(log.CoversWay(0, "a/b/c", 50)) << "a/b may be a link";
  EXPECT_FALSE(log.CoversWay(0, "a/b/c", 101));
  EXPECT_FALSE(log.CoversWay(0, "a/bc", 50));
  log.Add(1, "", true, 300);
  EXPECT_TRUE(log.Covers(1, "any/thing", 300));
  EXPECT_FALSE(log.Covers(0, "any/thing", 250));
}

TEST(InvalidationLog, ForgetsNothingAndDoubtsFewOthers) {
  constexpr int kPaths = 1000;
  InvalidationLog log;
  log.Add(0, "a/b", false, 100);
  log.Add(0, "d", true, 100);
  for (int i = 0; i < kPaths; ++i) log.Add(0, "log/" + std::to_string(i), i % 2 == 0, 200);
  EXPECT_TRUE(log.Covers(0, "a/b", 100));
  EXPECT_TRUE(log.Covers(0, "d/e/f", 100));
  int doubted = 0;
  for (int i = 0; i < kPaths; ++i) {
    EXPECT_TRUE(log.Covers(0, "log/" + std::to_string(i), 200));
    doubted += log.Covers(0, "data/" + std::to_string(i), 150) ? 1 : 0;
  }
  EXPECT_LE(doubted, 10);
  for (int i = 0; i < 100'000; ++i) log.Add(0, "x/" + std::to_string(i), true, 300);
  EXPECT_TRUE(log.Covers(0, "a/b", 100));
}

}  // namespace
}  // namespace tierd::engine
