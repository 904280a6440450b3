// Times that int64 nanoseconds cannot say (before 1677, after 2262): what has one is not served, by
// no kind of question (client_lib/abi/time_ns.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include "client_lib/abi/time_ns.h"
#include "tests/engine/engine_fixture.h"

namespace tierd::engine {
namespace {

constexpr time_t kYear1600 = -11'676'096'000, kYear2400 = 13'569'465'600, kYear2020 = 1'577'836'800;

class FarTimesTest : public EngineTest {
 protected:
  FarTimesTest() { source_options().path = far_.path(); }
  void SetUp() override {
    far_.Write("probe", "");
    struct stat st;
    SetTimes("probe", kYear1600, kYear2400);
    ASSERT_EQ(::stat((far_ / "probe").c_str(), &st), 0);
    if (st.st_atim.tv_sec != kYear1600 || st.st_mtim.tv_sec != kYear2400) GTEST_SKIP() << far_.path() << " keeps no such times";
  }

  void MakeFile(const std::string& name, time_t time, int version = 1) {
    far_.Write(name, Bytes(name, 5000, version));
    SetTimes(name, time, time);
  }
  void SetTimes(const std::string& name, time_t accessed, time_t modified) {
    const timespec times[2] = {{accessed, 0}, {modified, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (far_ / name).c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  }
  void ExpectNotServed(const std::string& name, abi::FetchOp op) {
    const Answer answer = Fetch(name, op);
    EXPECT_EQ(answer.status(), abi::FetchStatus::kBypass) << name;
    EXPECT_EQ(answer.reply.reason, static_cast<std::uint8_t>(abi::Fallback::kTooLarge)) << name;
  }

  const source::TempTree far_{source::TempTree::MemoryDir()};  // tmpfs keeps all times, ext4 none before 1901
};

TEST_F(FarTimesTest, ConversionIsExactWithinTheRangeAndSaidOutsideOfIt) {
  const auto of = [](std::int64_t seconds, long ns) { return abi::TimeNs(timespec{seconds, ns}); };
  EXPECT_EQ(of(1, 2), 1'000'000'002);
  EXPECT_EQ(of(-1, 999'999'999), -1);
  EXPECT_EQ(of(9'223'372'036, 854'775'806), std::numeric_limits<std::int64_t>::max() - 1);
  EXPECT_EQ(of(-9'223'372'036, 0), -9'223'372'036'000'000'000);
  for (const std::int64_t seconds : {std::int64_t{kYear2400}, std::int64_t{9'223'372'037}, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(of(seconds, 0), abi::kTooLateNs);
    EXPECT_EQ(of(-seconds, 0), abi::kTooEarlyNs);
  }
  EXPECT_EQ(of(9'223'372'036, 999'999'999), abi::kTooLateNs);
  EXPECT_FALSE(abi::IsTime(abi::kTooLateNs) || abi::IsTime(abi::kTooEarlyNs));
  EXPECT_TRUE(abi::IsTime(0));
}

TEST_F(FarTimesTest, FilesOf1600And2400AreTheSources) {
  for (const auto& [name, time] : {std::pair{"old", kYear1600}, std::pair{"young", kYear2400}}) MakeFile(name, time);
  MakeFile("read_later", kYear2020);
  SetTimes("read_later", kYear2400, kYear2020);
  MakeFile("plain", kYear2020);
  StartEngine();
  for (const char* name : {"old", "young", "read_later"}) {
    ExpectNotServed(name, abi::FetchOp::kChunk);
    ExpectNotServed(name, abi::FetchOp::kStat);
    EXPECT_EQ(FileOf(name), kNoFile) << name;
  }
  EXPECT_EQ(Fetch("plain").bytes, Bytes("plain", 5000));
}

TEST_F(FarTimesTest, AFileThatGetsSuchATimeIsTheSourcesUntilItHasAnother) {
  MakeFile("file", kYear2020);
  StartEngine();
  for (const time_t time : {kYear2400, kYear1600}) {
    ASSERT_EQ(Fetch("file").status(), abi::FetchStatus::kFrame);
    SetTimes("file", kYear2020, time);
    Advise(abi::AdviseOp::kInvalidate, "file");
    ExpectNotServed("file", abi::FetchOp::kStat);
    ExpectNotServed("file", abi::FetchOp::kChunk);
    SetTimes("file", kYear2020, kYear2020);
    Advise(abi::AdviseOp::kInvalidate, "file");
    ASSERT_TRUE(RunUntil([&] { return Fetch("file").status() == abi::FetchStatus::kFrame; }, 5000));
  }
}

TEST_F(FarTimesTest, DirectoriesTheirListingsAndFifosAreTheSources) {
  far_.Write("d/file", "x");
  SetTimes("d", kYear2020, kYear2400);
  ASSERT_EQ(::mkfifo((far_ / "fifo").c_str(), 0600), 0);
  SetTimes("fifo", kYear1600, kYear2020);
  StartEngine();
  ExpectNotServed("d", abi::FetchOp::kStat);
  ExpectNotServed("d", abi::FetchOp::kList);
  ExpectNotServed("d", abi::FetchOp::kList);
  ExpectNotServed("fifo", abi::FetchOp::kStat);
  EXPECT_EQ(FileOf("d"), kNoFile);
}

TEST_F(FarTimesTest, AWalkAndAPrefetchPassThemBy) {
  MakeFile("d/old", kYear1600);
  MakeFile("d/plain", kYear2020);
  StartEngine();
  (void)WaitForJob(engine().jobs().Walk({{&unit(), "d"}}));
  ASSERT_TRUE(RunUntil([&] { return FileOf("d/plain") != kNoFile; }));
  EXPECT_EQ(FileOf("d/old"), kNoFile);
}

}  // namespace
}  // namespace tierd::engine
