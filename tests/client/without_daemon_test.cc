// tier_open ... tier_close where there is no daemon: plain POSIX on the source.
#include <errno.h>

#include "client_lib/src/client.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/settings.h"
#include "tests/client/client_rig.h"

namespace tierd::testing {
namespace {

class WithoutDaemonTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    Client();
  }
  tier_file* Open(const std::string& path) {
    tier_file* file = nullptr;
    EXPECT_EQ(0, tier_open(client_, path.c_str(), &file, 0)) << path;
    return file;
  }
};

// System calls of this process that read something.
std::uint64_t ReadCalls() {
  std::ifstream io("/proc/self/io");
  for (std::string key; io >> key;) {
    std::uint64_t value = 0;
    io >> value;
    if (key == "syscr:") return value;
  }
  return 0;
}

TEST_F(WithoutDaemonTest, OpensTheSource) {
  constexpr std::size_t kLarge = 340'000;
  Write("large", ContentOf("large", kLarge));
  tier_file* file = Open(Path("large"));
  std::string read(kLarge + 1, '\0');
  std::size_t at = 0;
  for (ssize_t got = 1; got > 0; at += static_cast<std::size_t>(got)) {
    got = tier_file_pread(file, read.data() + at, std::min<std::size_t>(70'000, read.size() - at), static_cast<std::int64_t>(at));
    ASSERT_GE(got, 0);
  }
  EXPECT_TRUE(ContentOf("large", kLarge) == read.substr(0, at));
  tier_view view;
  ASSERT_EQ(0, tier_file_pin(file, 10, 20, &view));
  EXPECT_EQ(ContentOf("large", kLarge).substr(10, 20), std::string(static_cast<const char*>(view.data), view.size));
  tier_release(&view);
  EXPECT_EQ(-EINVAL, tier_file_pin(file, -1, 20, &view));
  tier_close(file);
  tier_close(nullptr);
  EXPECT_EQ(-ENODATA, tier_open(client_, Path("large").c_str(), &file, TIER_CACHED));
  EXPECT_EQ(-ENOENT, tier_open(client_, Path("missing").c_str(), &file, 0));
  EXPECT_EQ(-EISDIR, tier_open(client_, root_.c_str(), &file, 0));
  EXPECT_EQ(nullptr, file);
}

// A job inherits the variable from the login node, su from another user; the daemon does not go by it then, either.
TEST_F(WithoutDaemonTest, ARuntimeDirectoryThatIsNotThereIsPassedOver) {
  const auto socket = [](const std::string& runtime) {
    ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
    client::Settings settings;
    EXPECT_TRUE(client::ReadSettings(nullptr, settings));
    ::unsetenv("XDG_RUNTIME_DIR");
    return std::string(settings.socket);
  };
  const std::string otherwise = "/tmp/tierd-" + std::to_string(::geteuid()) + "/tierd.sock";
  EXPECT_EQ(root_ + "/tierd/tierd.sock", socket(root_));
  EXPECT_EQ(otherwise, socket(root_ + "/none"));
  EXPECT_EQ(otherwise, socket("relative"));
  Write("file", "x");
  EXPECT_EQ(otherwise, socket(Path("file")));
  if (::chown(root_.c_str(), 1234, 1234) != 0) return;  // not root, or no more rights than a service's
  EXPECT_EQ(otherwise, socket(root_));
  ASSERT_EQ(0, ::chown(root_.c_str(), ::geteuid(), ::getegid()));
}

TEST_F(WithoutDaemonTest, AShortFileIsReadByOneSystemCall) {
  Write("short", ContentOf("short", 800));
  Write("grown", ContentOf("grown", 800));
  tier_file* file = Open(Path("short"));
  char buffer[4096];
  const std::uint64_t before = ReadCalls();
  const std::uint64_t looked = ReadCalls();
  const ssize_t got = tier_file_pread(file, buffer, sizeof buffer, 0);
  const ssize_t whole = tier_read_file(client_, Path("short").c_str(), buffer, sizeof buffer, nullptr, 0);
  const std::uint64_t after = ReadCalls();
  EXPECT_EQ(ContentOf("short", 800), std::string(buffer, static_cast<std::size_t>(got)));
  EXPECT_EQ(800, whole);
  tier_attr attr{};
  attr.size = sizeof attr;
  ASSERT_EQ(0, tier_fstat(file, &attr));
  struct stat st {};
  ASSERT_EQ(0, ::stat(Path("short").c_str(), &st));
  EXPECT_EQ(st.st_ino, attr.ino);
  EXPECT_EQ(st.st_dev, attr.dev);
  EXPECT_EQ(st.st_mode, attr.mode);
  EXPECT_EQ(800u, attr.bytes);
  EXPECT_EQ(st.st_mtim.tv_sec * 1'000'000'000ll + st.st_mtim.tv_nsec, attr.mtime_ns);
  tier_close(file);
  if (before != 0) {  // a kernel that counts
    EXPECT_EQ(2u, (after - looked) - (looked - before));
  }
  // What has been added behind its end since comes as with pread.
  file = Open(Path("grown"));
  std::ofstream(Path("grown"), std::ios::app) << std::string(700, 'x');
  EXPECT_EQ(1500, tier_file_pread(file, buffer, sizeof buffer, 0));
  EXPECT_EQ(0, tier_file_pread(file, buffer, sizeof buffer, 1500));
  EXPECT_EQ(700, tier_file_pread(file, buffer, sizeof buffer, 800));
  tier_close(file);
}

// The first of them lies in the client, the others do not.
TEST_F(WithoutDaemonTest, ManyFilesAreOpenAtOnce) {
  constexpr int kFiles = 10;
  const auto name = [](int i) { return "f" + std::to_string(i); };
  for (int i = 0; i < kFiles; ++i) Write(name(i), ContentOf(name(i), 500 + static_cast<std::size_t>(i)));
  const auto expect = [&](tier_file* file, int i) {
    char buffer[1000];
    const ssize_t got = tier_file_pread(file, buffer, sizeof buffer, 0);
    ASSERT_EQ(500 + i, got);
    EXPECT_EQ(ContentOf(name(i), 500 + static_cast<std::size_t>(i)), std::string(buffer, static_cast<std::size_t>(got)));
  };
  std::vector<tier_file*> files;
  for (int i = 0; i < kFiles; ++i) files.push_back(Open(Path(name(i))));
  for (const int i : {0, 5, 9}) {
    tier_close(files[static_cast<std::size_t>(i)]);
    tier_file* missing = nullptr;
    EXPECT_EQ(-ENOENT, tier_open(client_, Path("missing").c_str(), &missing, 0));
    files[static_cast<std::size_t>(i)] = Open(Path(name(i)));
  }
  for (int i = 0; i < kFiles; ++i) expect(files[static_cast<std::size_t>(i)], i);
  for (tier_file* file : files) tier_close(file);
  tier_file* file = Open(Path(name(3)));
  expect(file, 3);
  tier_close(file);
}

TEST_F(WithoutDaemonTest, AnOpenFileOutlivesItsClient) {
  Write("f", ContentOf("f", 100));
  Write("g", ContentOf("g", 200));
  char buffer[300];
  tier_file* file = Open(Path("f"));
  tier_disconnect(client_);
  client_ = nullptr;
  Client();
  tier_file* other = Open(Path("g"));
  EXPECT_EQ(100, tier_file_pread(file, buffer, sizeof buffer, 0));
  tier_close(file);
  EXPECT_EQ(200, tier_file_pread(other, buffer, sizeof buffer, 0));
  EXPECT_EQ(ContentOf("g", 200), std::string(buffer, 200));
  tier_close(other);
}

// Opens that follow each other closely do not all look at the clock: at most 15 come after the time and do not see it.
TEST(NextProbeTest, ARowOfOpensSeesTheTimeSoon) {
  client::NextProbe probe;
  const std::int64_t at_ns = client::CoarseNs() + 50'000'000;
  probe.SetTo(at_ns);
  int late = 0;
  for (;;) {
    const bool passed = client::CoarseNs() >= at_ns;
    if (probe.DueNow()) break;
    if (passed) ++late;
  }
  EXPECT_GE(client::CoarseNs(), at_ns);
  EXPECT_LT(late, 16);
  EXPECT_TRUE(probe.DueNow()) << "as long as nobody has looked for the daemon";
  // Who sets another time is not late.
  probe.SetTo(0);
  EXPECT_TRUE(probe.DueNow());
}

TEST(NextProbeTest, FewOpensSeeTheTimeAtOnce) {
  client::NextProbe probe;
  const std::int64_t at_ns = client::CoarseNs() + 50'000'000;
  probe.SetTo(at_ns);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(!probe.DueNow() || client::CoarseNs() >= at_ns);
  while (client::CoarseNs() < at_ns) ::usleep(1000);
  EXPECT_TRUE(probe.DueNow());
}

TEST_F(WithoutDaemonTest, ReadsAreCounted) {
  Write("f", ContentOf("f", 1000));
  tier_file* file = Open(Path("f"));
  char buffer[600];
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(600, tier_file_pread(file, buffer, sizeof buffer, 0));
    EXPECT_EQ(400, tier_file_pread(file, buffer, sizeof buffer, 600));
    if (i != 50) continue;
    EXPECT_EQ(102u, Stats().reads[TIER_FROM_BYPASS]);
  }
  tier_close(file);
  EXPECT_EQ(200u, Stats().reads[TIER_FROM_BYPASS]);
  EXPECT_EQ(100'000u, Stats().bytes[TIER_FROM_BYPASS]);
  EXPECT_EQ(200u, Fallbacks(abi::Fallback::kNoDaemon));
}

}  // namespace
}  // namespace tierd::testing
