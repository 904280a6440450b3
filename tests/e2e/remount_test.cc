// Another file system where the source was (HAZARDS 2.13): the daemon lets go of the old one, and its SSD tier does not pass for the new one. The two file systems
// are copies of one image that differ in the bytes of one file and in their name: inode, size and all stamps are the same.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>
#include <memory>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/exposition.h"
#include "tests/e2e/own_mounts.h"
#include "tests/e2e/reading.h"

namespace tierd::e2e {
namespace {

constexpr std::size_t kBytes = 100'000;
constexpr int kTemporaryFailure = 75;

int Shell(const std::string& command) { return std::system(("PATH=$PATH:/sbin:/usr/sbin; exec >/dev/null 2>&1; " + command).c_str()); }

class RemountTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount a disk image";
    KeepMountsToOneself();
    std::filesystem::create_directories(source);
    if (Shell("truncate -s 8M " + first + " && mkfs.ext4 -q -F -O ^metadata_csum " + first + " && mount -o loop " + first + " " + source) != 0) {
      GTEST_SKIP() << "loop mounts of ext4 are not possible here";
    }
    Write(Path(), std::string(kBytes, 'A'));
    ASSERT_EQ(Shell("umount " + source + " && cp " + first + " " + second + " && tune2fs -U random " + second), 0);
    ASSERT_EQ(Shell("sed -i s/AAAAAAAA/BBBBBBBB/g " + second), 0);
    ASSERT_EQ(Shell("mount -o loop,ro " + first + " " + source), 0);
  }
  void TearDown() override {
    if (daemon.running()) daemon.Kill(SIGKILL);
    Shell("umount " + source + "; umount " + source);
  }
  std::string Path() const { return source + "/f"; }
  void Start() {
    DaemonProcess::Options options;
    options.source = source;
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.staleness=immutable"});
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    ASSERT_TRUE(Eventually(5000, [&] { return daemon.Status()["tiers"]["ssd"]["state"] != "recovering"; }));
  }
  // Reads until the file comes from the cache.
  void ReadIntoCache(Client& client, char expected) {
    ASSERT_TRUE(Eventually(10'000, [&] {
      const Got got = Get(client.get(), Path());
      EXPECT_EQ(got.bytes, std::string(kBytes, expected)) << "from " << got.origin;
      return got.origin == TIER_FROM_RAM;
    }));
  }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  std::string first = scratch.path() + "/first";
  std::string second = scratch.path() + "/second";
  DaemonProcess daemon{scratch.path()};
};

TEST_F(RemountTest, CoveredByAnotherTheDaemonEndsAndReadersReadWhatTheirPathNames) {
  Start();
  Client client(daemon.socket());
  ReadIntoCache(client, 'A');
  ASSERT_EQ(Shell("mount -o loop,ro " + second + " " + source), 0);
  ASSERT_TRUE(Eventually(10'000, [&] { return daemon.Ended(); })) << daemon.output();
  EXPECT_EQ(Get(client.get(), Path()).bytes, std::string(kBytes, 'B'));
  EXPECT_EQ(daemon.Stop(), kTemporaryFailure);
  EXPECT_NE(daemon.output().find("source moved path=" + source), std::string::npos) << daemon.output();
}

TEST_F(RemountTest, WhatWasReadFromAnotherFileSystemIsNotServedAfterARestart) {
  Start();
  ASSERT_EQ(daemon.Prefetch(source, "ssd")["files_verified"], 1);
  EXPECT_EQ(daemon.Stop(), 0);
  ASSERT_EQ(Shell("umount " + source + " && mount -o loop,ro " + second + " " + source), 0);
  Start();
  Client client(daemon.socket());
  ReadIntoCache(client, 'B');
}

TEST_F(RemountTest, TheSameFileSystemMountedAnewFindsItsRecords) {
  Start();
  ASSERT_EQ(daemon.Prefetch(source, "ssd")["files_verified"], 1);
  EXPECT_EQ(daemon.Stop(), 0);
  // On another loop device: another st_dev.
  ASSERT_EQ(Shell("umount " + source + " && mount -o loop,ro " + second + " " + source + " && mount -o loop,ro " + first + " " + source), 0);
  Start();
  Client client(daemon.socket());
  const Got got = Get(client.get(), Path());
  EXPECT_EQ(got.bytes, std::string(kBytes, 'A'));
  EXPECT_EQ(got.origin, TIER_FROM_SSD);
}

// Mounts elsewhere, and one that is gone again, are no reason to end.
TEST_F(RemountTest, OtherMountsChangeNothing) {
  Start();
  Client client(daemon.socket());
  ReadIntoCache(client, 'A');
  const std::string other = scratch.path() + "/other";
  std::filesystem::create_directories(other);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Shell("mount -t tmpfs none " + other + " && sleep 1 && umount " + other), 0);
  }
  EXPECT_FALSE(daemon.Ended()) << daemon.output();
  EXPECT_EQ(Get(client.get(), Path()).origin, TIER_FROM_RAM);
  EXPECT_EQ(daemon.Stop(), 0);
}

// Another version of the data set is put in its place, or it is gone: nobody tells of a rename (HAZARDS 2.14).
class RenamedRootTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Write(Path(), std::string(kBytes, 'A'));
    Write(scratch.path() + "/next/f", std::string(kBytes, 'B'));
    DaemonProcess::Options options;
    options.source = source;
    options.ssd = "off";
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.ttl=1s", "--set", std::string("source.staleness=") + GetParam()});
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
    client = std::make_unique<Client>(daemon.socket());
    EXPECT_EQ(Read().bytes, std::string(kBytes, 'A'));
  }
  std::string Path() const { return source + "/f"; }
  Got Read() { return Get(client->get(), Path()); }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
  std::unique_ptr<Client> client;
};

TEST_P(RenamedRootTest, WhatItsPathNamesIsReadWithinTheBound) {
  std::filesystem::rename(source, source + ".old");
  std::filesystem::rename(scratch.path() + "/next", source);
  ASSERT_TRUE(Eventually(10'000, [&] { return daemon.Ended(); })) << daemon.output();
  EXPECT_EQ(Read().bytes, std::string(kBytes, 'B'));
  EXPECT_EQ(daemon.Stop(), kTemporaryFailure);
  EXPECT_NE(daemon.output().find("source moved path=" + source), std::string::npos) << daemon.output();
}

TEST_P(RenamedRootTest, WhatIsGoneIsNotThereWithinTheBound) {
  std::filesystem::rename(source, source + ".old");
  ASSERT_TRUE(Eventually(10'000, [&] { return daemon.Ended(); })) << daemon.output();
  EXPECT_EQ(Read().error, -ENOENT);
  EXPECT_EQ(daemon.Stop(), kTemporaryFailure);
}

INSTANTIATE_TEST_SUITE_P(Staleness, RenamedRootTest, testing::Values("ttl", "open"));

// A container: the same path is another directory there (HAZARDS 2.14). Its reader gets the files of its own /data, and everybody else is served on.
class OtherNamespaceTest : public testing::Test {
 protected:
  // In a child with a mount namespace of its own, where `theirs` stands on `place`: 0 or the exit code.
  int InAnotherNamespace(const std::string& place, const std::function<int()>& body) const {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || ::mount(theirs.c_str(), place.c_str(), nullptr, MS_BIND, nullptr) != 0)
        ::_exit(kNoNamespace);
      ::_exit(body());
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  void Start() {
    DaemonProcess::Options options;
    options.source = source;
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.staleness=immutable"});
    ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  }
  static constexpr int kNoNamespace = 77;
  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  std::string theirs = scratch.path() + "/theirs";
  DaemonProcess daemon{scratch.path()};
};

TEST_F(OtherNamespaceTest, AReaderWithAnotherDirectoryThereReadsItsOwnFiles) {
  const std::string path = source + "/f", only_ours = source + "/only_ours";
  Write(path, std::string(kBytes, 'A'));
  Write(only_ours, "ours");
  Write(theirs + "/f", std::string(kBytes, 'B'));  // as many bytes, and the same stamps
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  const timespec stamps[2] = {st.st_atim, st.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, (theirs + "/f").c_str(), stamps, 0), 0);
  ASSERT_NO_FATAL_FAILURE(Start());
  Client client(daemon.socket());
  for (const std::string& file : {path, only_ours}) {
    ASSERT_TRUE(Eventually(10'000, [&] { return Get(client.get(), file).origin == TIER_FROM_RAM; })) << file;
  }
  const int code = InAnotherNamespace(source, [&] {
    Client there(daemon.socket());
    if (there.error() != 0) return 1;
    std::string copy(kBytes, 'x');
    for (int round = 0; round < 3; ++round) {
      const Got got = Get(there.get(), path);
      if (got.error != 0 || got.bytes != std::string(kBytes, 'B')) return 2;
      if (got.origin != TIER_FROM_BYPASS) return 3;
      if (tier_read_file(there.get(), path.c_str(), copy.data(), copy.size(), nullptr, 0) != static_cast<ssize_t>(kBytes) || copy != std::string(kBytes, 'B')) return 4;
      tier_attr attr{};
      attr.size = sizeof attr;
      if (tier_stat(there.get(), only_ours.c_str(), &attr, 0) != -ENOENT) return 5;
      if (Get(there.get(), only_ours).error != -ENOENT) return 6;
    }
    // The client that came over by fork, and knows the daemon's /data: a session of its own, and a look of its own.
    if (Get(client.get(), path).bytes != std::string(kBytes, 'B')) return 7;
    tier_statistics statistics{};
    statistics.size = sizeof statistics;
    return tier_stats(there.get(), &statistics) == 0 && statistics.reads[TIER_FROM_RAM] == 0 ? 0 : 8;
  });
  if (code == kNoNamespace) GTEST_SKIP() << "no mount namespace here";
  EXPECT_EQ(code, 0);
  const Got got = Get(client.get(), path);
  EXPECT_EQ(got.bytes, std::string(kBytes, 'A'));
  EXPECT_EQ(got.origin, TIER_FROM_RAM);
}

// A volume of its own inside of the data set: what lies there, or is a link to there, is the container's; all else is served.
TEST_F(OtherNamespaceTest, AReaderWithAMountBelowTheSourceReadsItsOwnFilesThere) {
  const std::string labels = source + "/the labels", file = labels + "/f", other = source + "/other", link = source + "/link", nested = source + "/the labels2/f";
  for (const std::string& path : {file, other, nested}) Write(path, std::string(kBytes, 'A'));
  Write(labels + "/only_ours", "ours");
  Write(theirs + "/f", std::string(kBytes, 'B'));
  std::filesystem::create_symlink("the labels/f", link);
  std::filesystem::create_directory_symlink("the labels", source + "/by_link");
  const std::string by_link = source + "/by_link/f";
  ASSERT_NO_FATAL_FAILURE(Start());
  Client client(daemon.socket());
  for (const std::string& path : {file, other, nested, link, by_link, labels + "/only_ours"})
    ASSERT_TRUE(Eventually(10'000, [&] { return Get(client.get(), path).origin == TIER_FROM_RAM; })) << path;
  const int code = InAnotherNamespace(labels, [&] {
    Client there(daemon.socket());
    if (there.error() != 0) return 1;
    for (int round = 0; round < 3; ++round) {
      int failed = 10 * round + 2;
      for (const std::string& path : {file, link, by_link}) {
        const Got got = Get(there.get(), path);
        if (got.bytes != std::string(kBytes, 'B') || got.origin != TIER_FROM_BYPASS) return failed;
        tier_attr attr{};
        attr.size = sizeof attr;
        struct stat st {};
        if (tier_stat(there.get(), path.c_str(), &attr, 0) != 0 || ::stat(path.c_str(), &st) != 0 || attr.ino != st.st_ino) return failed + 1;
        failed += 2;
      }
      if (Get(there.get(), labels + "/only_ours").error != -ENOENT) return failed;
      for (const std::string& path : {other, nested})
        if (const Got got = Get(there.get(), path); got.bytes != std::string(kBytes, 'A') || got.origin != TIER_FROM_RAM) return failed + 1;
    }
    return 0;
  });
  if (code == kNoNamespace) GTEST_SKIP() << "no mount namespace here";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(Get(client.get(), file).origin, TIER_FROM_RAM);
}

}  // namespace
}  // namespace tierd::e2e
