// Each kind of fault, as a client of the mount sees it.
#include <signal.h>
#include <sys/wait.h>

#include <bit>
#include <filesystem>
#include <set>
#include <vector>

#include "tests/pfs_sim/rig_test_base.h"

namespace pfs_sim {
namespace {

using std::chrono::milliseconds;

std::string Failed(int error) { return "errno " + std::to_string(error); }

class RigFault : public RigTest {
 protected:
  void SetUp() override {
    RigTest::SetUp();
    if (IsSkipped()) return;
    // Entries and attributes are not cached: each call reaches the rig.
    StartRig({.timeout_ms = 0});
    ASSERT_NE(rig_, nullptr);
    WriteBacking("a", Sample("a", kSize));
  }

  // Total number of bits in which two strings of one size differ.
  static int BitsChanged(const std::string& a, const std::string& b) {
    EXPECT_EQ(a.size(), b.size());
    int bits = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      bits += std::popcount(static_cast<unsigned char>(a[i] ^ b[i]));
    }
    return bits;
  }

  static constexpr size_t kSize = 10000;
};

TEST_F(RigFault, ErrnoReachesTheCallerOfEachOperation) {
  const std::string id = Control("fault add op=read path=a errno=EIO");
  EXPECT_EQ(ReadFile(Mounted("a")), Failed(EIO));
  Control("fault clear " + id);
  EXPECT_EQ(ReadFile(Mounted("a")), Sample("a", kSize));
  Control("fault add op=open path=a errno=ENOMEM");
  EXPECT_EQ(ReadFile(Mounted("a")), Failed(ENOMEM));
  Control("fault clear");
  Control("fault add op=lookup path=a errno=EACCES");
  EXPECT_EQ(StatErrno(Mounted("a")), EACCES);
  Control("fault clear");
  Control("fault add op=readdir path=. errno=EIO");
  std::error_code error;
  const auto entries = std::filesystem::directory_iterator(rig_->mount(), error);
  EXPECT_EQ(error.value(), EIO);
}

TEST_F(RigFault, NthRequestFailsAndNoOther) {
  Control("fault add op=open path=a nth=2 errno=EIO");
  EXPECT_EQ(ReadFile(Mounted("a")), Sample("a", kSize));
  EXPECT_EQ(ReadFile(Mounted("a")), Failed(EIO));
  EXPECT_EQ(ReadFile(Mounted("a")), Sample("a", kSize));
  EXPECT_EQ(rig_->Counters().faults, 1u);
  EXPECT_EQ(rig_->Counters().ops["open"].errors, 1u);
}

TEST_F(RigFault, ShortReadGivesFewerBytes) {
  Control("fault add op=read path=a errno=short bytes=1234 count=1");
  const int fd = open(Mounted("a").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ReadAt(fd, kSize, 0), Sample("a", kSize).substr(0, 1234));
  close(fd);
  EXPECT_EQ(ReadFile(Mounted("a")), Sample("a", kSize));
}

TEST_F(RigFault, FlipChangesExactlyOneBit) {
  Control("fault add op=read path=a errno=flip count=1");
  EXPECT_EQ(BitsChanged(ReadFile(Mounted("a")), Sample("a", kSize)), 1);
  EXPECT_EQ(ReadFile(Mounted("a")), Sample("a", kSize));
}

TEST_F(RigFault, FlipHitsTheBitAskedFor) {
  Control("fault add op=read path=a errno=flip bit=40003");
  const std::string got = ReadFile(Mounted("a"));
  std::string expected = Sample("a", kSize);
  expected[5000] = static_cast<char>(expected[5000] ^ 8);
  EXPECT_EQ(got, expected);
}

TEST_F(RigFault, HungReadsGoOnWhenReleased) {
  constexpr size_t kReaders = 8;
  // One file each: readers of the same page would wait for one request.
  for (size_t i = 0; i < kReaders; ++i) WriteBacking("h" + std::to_string(i), Sample("a", kSize));
  Control("fault add op=read path=h* errno=hang");
  std::vector<std::string> got(kReaders);
  std::vector<std::thread> readers;
  for (size_t i = 0; i < kReaders; ++i) {
    readers.emplace_back([&, i] { got[i] = ReadFile(Mounted("h" + std::to_string(i))); });
  }
  EXPECT_TRUE(WaitForHung(kReaders));
  EXPECT_EQ(ReadFile(Mounted("a")), Sample("a", kSize));  // others are served
  const RigCounters counters = rig_->Counters();
  EXPECT_EQ(counters.in_flight, kReaders);
  EXPECT_GE(counters.max_concurrency, kReaders);
  Control("fault clear");
  EXPECT_EQ(Control("release"), std::to_string(kReaders));
  for (std::thread& reader : readers) reader.join();
  for (const std::string& text : got) EXPECT_EQ(text, Sample("a", kSize));
  EXPECT_EQ(rig_->Counters().hung, 0u);
  EXPECT_TRUE(WaitForIdle());
}

TEST_F(RigFault, HungOpenCanBeReleasedWithAnError) {
  Control("fault add op=open path=a errno=hang count=1");
  std::string got;
  std::thread reader([&] { got = ReadFile(Mounted("a")); });
  ASSERT_TRUE(WaitForHung(1));
  EXPECT_EQ(Control("release errno=ETIMEDOUT"), "1");
  reader.join();
  EXPECT_EQ(got, Failed(ETIMEDOUT));
  EXPECT_EQ(ReadFile(Mounted("a")), Sample("a", kSize));
  EXPECT_TRUE(WaitForIdle());
}

TEST_F(RigFault, HungReaderOutlivesSigkillUntilReleased) {
  Control("fault add op=open path=a errno=hang count=1");
  const std::string path = Mounted("a");
  const pid_t child = fork();
  if (child == 0) _exit(open(path.c_str(), O_RDONLY | O_CLOEXEC) >= 0 ? 0 : 1);
  ASSERT_TRUE(WaitForHung(1));
  kill(child, SIGKILL);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0);
  Control("release");
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(RigFault, DelayAddsToOnePath) {
  WriteBacking("b", "x");
  Control("fault add op=open path=b errno=delay usec=60000");
  EXPECT_GE(Time([&] { ReadFile(Mounted("b")); }), milliseconds(60));
  EXPECT_EQ(ReadFile(Mounted("a")), Sample("a", kSize));
}

TEST_F(RigFault, StaleAttributesStayAsFirstSeen) {
  const std::string id = Control("fault add path=a errno=stale_attr");
  const struct stat before = StatOf(Mounted("a"));
  WriteBacking("a", "longer or shorter");
  EXPECT_EQ(StatOf(Mounted("a")).st_size, before.st_size);
  EXPECT_EQ(StatOf(Mounted("a")).st_ctim.tv_nsec, before.st_ctim.tv_nsec);
  Control("fault clear " + id);
  EXPECT_EQ(StatOf(Mounted("a")).st_size, 17);
}

TEST_F(RigFault, StampsAreRoundedDown) {
  Control("stamp_granularity 1000000000");
  const struct stat shown = StatOf(Mounted("a"));
  const struct stat real = StatOf(Backing("a"));
  EXPECT_EQ(shown.st_mtim.tv_nsec, 0);
  EXPECT_EQ(shown.st_ctim.tv_nsec, 0);
  EXPECT_EQ(shown.st_mtim.tv_sec, real.st_mtim.tv_sec);
  Control("stamp_granularity 4000000");
  EXPECT_EQ(StatOf(Mounted("a")).st_mtim.tv_nsec, real.st_mtim.tv_nsec / 4000000 * 4000000);
  Control("stamp_granularity 1");
  EXPECT_EQ(StatOf(Mounted("a")).st_mtim.tv_nsec, real.st_mtim.tv_nsec);
}

TEST_F(RigFault, AttributesShiftOnceOrAtEachAnswer) {
  const struct stat real = StatOf(Backing("a"));
  Control("attr_shift path=a ino+=1000 ctime+=5000000000");
  struct stat shown = StatOf(Mounted("a"));
  EXPECT_EQ(shown.st_ino, real.st_ino + 1000);
  EXPECT_EQ(shown.st_ctim.tv_sec, real.st_ctim.tv_sec + 5);
  EXPECT_EQ(shown.st_mtim.tv_sec, real.st_mtim.tv_sec);
  Control("attr_shift clear");
  Control("attr_shift path=a ino+=1 each=1");
  shown = StatOf(Mounted("a"));
  EXPECT_NE(StatOf(Mounted("a")).st_ino, shown.st_ino);
  Control("attr_shift clear");
  EXPECT_EQ(StatOf(Mounted("a")).st_ino, real.st_ino);
}

TEST_F(RigFault, HiddenEntriesAreMissingWithoutAnError) {
  std::filesystem::create_directory(Backing("d"));
  for (const char* path : {"d/x1", "d/x2", "d/y1"}) WriteBacking(path, path);
  const auto list = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(Mounted("d"))) {
      names.insert(entry.path().filename());
    }
    return names;
  };
  Control("hide path=d/x*");
  EXPECT_EQ(list(), std::set<std::string>({"y1"}));
  EXPECT_EQ(StatErrno(Mounted("d/x1")), ENOENT);
  EXPECT_EQ(ReadFile(Mounted("d/x2")), Failed(ENOENT));
  EXPECT_EQ(ReadFile(Mounted("d/y1")), "d/y1");
  Control("hide clear");
  EXPECT_EQ(list(), std::set<std::string>({"x1", "x2", "y1"}));
  EXPECT_EQ(ReadFile(Mounted("d/x2")), "d/x2");
}

TEST_F(RigFault, WritesAndSyncsFailToo) {
  const int fd = open(Mounted("w").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  Control("fault add op=write path=w errno=ENOSPC count=1");
  EXPECT_EQ(write(fd, "x", 1), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(write(fd, "x", 1), 1);
  Control("fault add op=fsync path=w errno=EIO count=1");
  EXPECT_EQ(fsync(fd), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(fsync(fd), 0);
  close(fd);
}

TEST_F(RigFault, BadCommandsAreRefusedInOneSentence) {
  const std::pair<const char*, const char*> commands[] = {
      {"", "error: empty command"},
      {"latency read", "error: usage: latency OP|all USEC"},
      {"latency raed 5", "error: unknown operation 'raed'"},
      {"latency read x", "error: latency x is not a number of microseconds"},
      {"bandwidth", "error: usage: bandwidth N (0 for no limit)"},
      {"concurrency -1", "error: usage: concurrency N (0 for no limit)"},
      {"fault", "error: usage: fault add KEY=VALUE... | fault clear [ID]"},
      {"fault add read", "error: 'read' is not key=value"},
      {"fault clear 99", "error: no fault '99'"},
      {"release errno=EOOPS", "error: 'errno=EOOPS' is not errno=NAME"},
      {"hide d", "error: usage: hide path=GLOB | hide clear"},
      {"stamp_granularity", "error: usage: stamp_granularity NSEC"},
      {"counters path", "error: usage: counters [reset | paths [PREFIX]]"}};
  for (const auto& [command, answer] : commands) EXPECT_EQ(rig_->Control(command), answer);
  EXPECT_TRUE(rig_->Control("frobnicate").starts_with("error: unknown command 'frobnicate'"));
  EXPECT_TRUE(rig_->Control("attr_shift path=a ino=3").starts_with("error: bad word 'ino=3'"));
  EXPECT_EQ(rig_->Control("ping"), "pong");
}

}  // namespace
}  // namespace pfs_sim
