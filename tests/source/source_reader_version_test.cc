// What a completion is worth: versions, errors of the source, file types, racy stamps.
#include <cerrno>
#include <tuple>

#include "tests/source/reader_fixture.h"
#include "tierd/io/aligned_buffer.h"

namespace tierd::source {
namespace {

class ReaderVersion : public ReaderTest {
 protected:
  void SetUp() override {
    Open(Threads());
    stat_ = File(100);
  }
  // One read of "a" that ends with these completions in turn.
  const ReadResult& ReadWith(const std::vector<io::FileReadResult>& results) {
    Read("a");
    reader_->Flush();
    for (const io::FileReadResult& result : results) End("a", result);
    EXPECT_TRUE(engine().reads.empty());
    EXPECT_EQ(heard_["a"].done, ++reads_);
    return heard_["a"].result;
  }
  io::FileStat With(std::int64_t ctime) const {
    io::FileStat stat = stat_;
    stat.ctime_ns = ctime;
    return stat;
  }

  io::FileStat stat_;
  int reads_ = 0;
};

TEST_F(ReaderVersion, RewriteDuringTheReadIsReadAgain) {
  io::FileStat rewritten = File(100, 9);
  const ReadResult& result = ReadWith({Seen(stat_, rewritten), Good(rewritten)});
  EXPECT_EQ(result.error, ReadError::kNone);
  EXPECT_TRUE(result.version.SameVersion(rewritten));
  const SourceCounters counters = reader_->counters();
  EXPECT_EQ(counters.version_retries, 1u);
  EXPECT_EQ(counters.bytes_discarded, 100u);
  EXPECT_EQ(counters.sent[0], 2u);
}

TEST_F(ReaderVersion, AFileThatChangesAllTheTimeIsNeverAccepted) {
  std::vector<io::FileReadResult> results;
  for (int i = 0; i < 4; ++i) results.push_back(Seen(File(100, 10 + i), File(100, 11 + i)));
  const ReadResult& result = ReadWith(results);
  EXPECT_EQ(result.error, ReadError::kChanged);
  EXPECT_EQ(result.bytes, 0u);
}

TEST_F(ReaderVersion, TruncationDuringTheReadIsReadAgain) {
  EXPECT_EQ(ReadWith({Seen(File(100), File(50, 9)), Good(File(50, 9))}).bytes, 50u);
}

TEST_F(ReaderVersion, FewerBytesThanTheSizeSaysAreNotAccepted) {
  io::FileReadResult brief = Good(stat_);
  brief.bytes = 60;
  EXPECT_EQ(ReadWith({brief, Good(stat_)}).bytes, 100u);
  EXPECT_EQ(ReadWith({brief, brief, brief, brief}).error, ReadError::kChanged);
}

// The buffer takes 4096 bytes, the rest 10,000 more.
class ReaderRest : public ReaderVersion {
 protected:
  // As an engine ends it: with room for the rest or without.
  void EndWith(const io::FileStat& before, const io::FileStat& after, std::size_t bytes, bool room = true) {
    ASSERT_FALSE(engine().reads.empty());
    const std::shared_ptr<io::RestBuffer> rest = engine().reads.front().request.rest;
    ASSERT_NE(rest, nullptr);
    if (room) ASSERT_TRUE(rest->Hold(10'000));
    else rest->Release();
    io::FileReadResult result = Seen(before, after);
    result.bytes = bytes;
    End("a", result);
  }
  void Start() {
    ReadRequest request = Request("a");
    request.rest = std::make_shared<io::RestBuffer>(pool_, 10'000);
    reader_->Read(std::move(request));
    reader_->Flush();
  }
  const ReadResult& result() { return heard_["a"].result; }

  std::shared_ptr<io::BufferPool> pool_ = std::make_shared<io::BufferPool>(std::size_t{1} << 20);
};

TEST_F(ReaderRest, CountsAsPartOfTheRead) {
  Start();
  EndWith(File(9000), File(9000), 9000);
  EXPECT_EQ(result().error, ReadError::kNone);
  EXPECT_EQ(result().bytes, 9000u);
  EXPECT_EQ(reader_->counters().bytes_read, 9000u);
  Start();
  EndWith(File(50'000), File(50'000), 14'096);
  EXPECT_EQ(result().error, ReadError::kNone);
  EXPECT_EQ(result().bytes, 14'096u);
  EXPECT_EQ(reader_->counters().bytes_discarded, 0u);
}

TEST_F(ReaderRest, WithoutRoomTheReadEndsAtTheCapacity) {
  Start();
  EndWith(File(9000), File(9000), 4096, false);
  EXPECT_EQ(result().error, ReadError::kNone);
  EXPECT_EQ(result().bytes, 4096u);
}

TEST_F(ReaderRest, IsCheckedWithTheHead) {
  Start();
  EndWith(File(9000), File(9000, 9), 9000);       // rewritten meanwhile
  EndWith(File(9000, 9), File(9000, 9), 8000);    // not all of it
  EndWith(File(9000, 9), File(9000, 9), 4096);    // nothing of it
  EXPECT_EQ(heard_["a"].done, 0);
  EndWith(File(3000, 11), File(3000, 11), 3000);  // short by now
  EXPECT_EQ(result().error, ReadError::kNone);
  EXPECT_EQ(result().bytes, 3000u);
  EXPECT_EQ(reader_->counters().version_retries, 3u);
  EXPECT_EQ(reader_->counters().bytes_discarded, 9000u + 8000 + 4096);
}

class ReaderDirect : public ReaderTest {
 protected:
  void SetUp() override {
    tree_.Write("file", "tells of the file system");
    Open(Threads());
    if (source_->direct_alignment() == 0) GTEST_SKIP() << "no O_DIRECT here";
  }
  void Start(std::uint64_t offset, std::size_t capacity, const char* name = "a") {
    ReadRequest request = Request(name);
    request.offset = offset;
    request.capacity = capacity;
    request.buffer = memory_.data();
    reader_->Read(std::move(request));
    reader_->Flush();
  }
  bool direct() { return engine().reads.front().request.direct; }

  io::AlignedBuffer memory_{std::size_t{2} << 20};
};

TEST_F(ReaderDirect, LargeReadsAndPiecesFromInsideAFile) {
  constexpr std::size_t kMiB = 1 << 20;
  for (const auto& [offset, capacity, expected] : {std::tuple<std::uint64_t, std::size_t, bool>{0, kMiB, true}, {0, kMiB / 2, false},
                                                   {0, kMiB + 1, false}, {8 * kMiB, 8192, true}, {8 * kMiB, 8191, false}}) {
    Start(offset, capacity);
    EXPECT_EQ(direct(), expected) << offset << "+" << capacity;
    End("a", Good(File(0)));
  }
}

TEST_F(ReaderDirect, AFileThatRefusesItIsReadAgainAndThreeSpeakForTheSource) {
  io::FileReadResult refused = Failed(EINVAL);
  refused.opened = true;
  refused.direct_refused = true;
  for (const char* name : {"a", "b", "c"}) {
    Start(0, 1 << 20, name);
    ASSERT_TRUE(direct()) << name;
    EXPECT_EQ(reader_->Report().find("O_DIRECT off"), std::string::npos) << name;
    End(name, refused);
    ASSERT_EQ(engine().reads.size(), 1u);
    EXPECT_FALSE(direct());
    End(name, Good(File(100)));
    EXPECT_EQ(heard_[name].result.error, ReadError::kNone);
    Start(0, 1 << 20, name);
    EXPECT_FALSE(direct()) << name;
    End(name, Good(File(100)));
  }
  Start(0, 1 << 20, "d");
  EXPECT_FALSE(direct());
  EXPECT_NE(reader_->Report().find("O_DIRECT off"), std::string::npos) << reader_->Report();
}

TEST_F(ReaderVersion, EmptyFileAndReadBehindTheEnd) {
  EXPECT_EQ(ReadWith({Good(File(0))}).error, ReadError::kNone);
  ReadRequest request = Request("b");
  request.offset = 8192;
  reader_->Read(std::move(request));
  reader_->Flush();
  io::FileReadResult nothing = Good(stat_);
  nothing.bytes = 0;
  End("b", nothing);
  EXPECT_EQ(heard_["b"].result.error, ReadError::kNone);
  EXPECT_EQ(heard_["b"].result.bytes, 0u);
}

TEST_F(ReaderVersion, AnotherVersionThanExpectedEndsAtOnceAndSaysWhich) {
  ReadRequest request = Request("a");
  request.expected = stat_;
  reader_->Read(std::move(request));
  reader_->Flush();
  io::FileStat renamed = stat_;
  renamed.ino = 8;  // cp -p and mv: same size and mtime
  End("a", Good(renamed));
  EXPECT_EQ(heard_["a"].result.error, ReadError::kChanged);
  EXPECT_EQ(heard_["a"].result.version.ino, 8u);
  EXPECT_EQ(engine().order.size(), 1u);
}

TEST_F(ReaderVersion, UnstableCtimeFallsBackToSizeAndMtimeAfterThreeTries) {
  const ReadResult first = ReadWith({Seen(With(1), With(2)), Seen(With(3), With(4)), Seen(With(5), With(6))});
  EXPECT_EQ(first.error, ReadError::kNone);
  EXPECT_TRUE(first.weak_version);
  EXPECT_EQ(reader_->counters().weak_versions, 1u);
  EXPECT_FALSE(reader_->SameVersion(With(1), With(2)));
  for (int i = 0; i < 2; ++i) ReadWith({Seen(With(1), With(2)), Seen(With(3), With(4)), Seen(With(5), With(6))});
  // Three files: the source is like that, and no file is read three times any more.
  EXPECT_TRUE(reader_->SameVersion(With(1), With(2)));
  EXPECT_TRUE(ReadWith({Seen(With(1), With(2))}).weak_version);
  EXPECT_EQ(ReadWith({Seen(File(100, 1), File(101, 1)), Good(stat_)}).error, ReadError::kNone);
  EXPECT_NE(reader_->Report().find("unstable"), std::string::npos);
}

TEST_F(ReaderVersion, OneRealChangeAmongUnstableStampsForbidsTheFallback) {
  const ReadResult& result = ReadWith({Seen(With(1), With(2)), Seen(File(100, 8), File(100, 9)), Seen(With(5), With(6)),
                                       Seen(With(7), With(8))});
  EXPECT_EQ(result.error, ReadError::kChanged);
}

TEST_F(ReaderVersion, ErrorsOfTheSourceArePassedOnAsTheyAre) {
  for (const int error : {EIO, EAGAIN, EACCES, ENOENT, ELOOP, ENOTCONN}) {
    const ReadResult& result = ReadWith({Failed(error)});
    EXPECT_EQ(result.error, ReadError::kErrno);
    EXPECT_EQ(result.sys_errno, error);
  }
  EXPECT_EQ(reader_->counters().reads[static_cast<std::size_t>(ReadError::kErrno)], 6u);
}

TEST_F(ReaderVersion, EstaleIsOpenedOnceAgain) {
  EXPECT_EQ(ReadWith({Failed(ESTALE), Good(stat_)}).error, ReadError::kNone);
  const ReadResult& result = ReadWith({Failed(ESTALE), Failed(ESTALE)});
  EXPECT_EQ(result.error, ReadError::kErrno);
  EXPECT_EQ(result.sys_errno, ESTALE);
  EXPECT_EQ(reader_->counters().stale_reopens, 2u);
}

TEST_F(ReaderVersion, OnlyRegularFilesOfThisMountCount) {
  for (const std::uint32_t type : {S_IFDIR, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK}) {
    io::FileReadResult other = Failed(EINVAL);
    other.opened = true;
    other.before = stat_;
    other.before.mode = type | 0644;
    EXPECT_EQ(ReadWith({other}).error, ReadError::kNotRegular);
  }
  EXPECT_EQ(ReadWith({Failed(EINVAL)}).error, ReadError::kNotRegular);
  io::FileStat elsewhere = stat_;
  ++elsewhere.dev;
  EXPECT_EQ(ReadWith({Good(elsewhere)}).error, ReadError::kOutside);
  EXPECT_EQ(ReadWith({Failed(EXDEV)}).error, ReadError::kOutside);
}

TEST_F(ReaderVersion, YoungStampsAreRacy) {
  const std::int64_t now = clock_.RealtimeNs();
  EXPECT_TRUE(ReadWith({Good(File(100, now - 9 * kSecond))}).racy);
  EXPECT_FALSE(ReadWith({Good(File(100, now - 11 * kSecond))}).racy);
  io::FileStat moved = File(100, now - 99 * kSecond);
  moved.ctime_ns = now - kSecond;
  EXPECT_TRUE(ReadWith({Good(moved)}).racy);
  EXPECT_EQ(reader_->counters().racy_reads, 2u);
}

TEST_F(ReaderVersion, AChangeSeenDuringAReadRevealsASourceClockBehindOurs) {
  const std::int64_t now = clock_.RealtimeNs();
  const std::int64_t minute = 60 * kSecond;
  EXPECT_FALSE(ReadWith({Good(File(100, now - minute))}).racy);
  // Rewritten while we read, and stamped a minute ago.
  EXPECT_TRUE(ReadWith({Seen(stat_, File(100, now - minute)), Good(File(100, now - minute))}).racy);
  EXPECT_NE(reader_->Report().find("60000 ms behind"), std::string::npos) << reader_->Report();
}

}  // namespace
}  // namespace tierd::source
