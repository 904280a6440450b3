// The rig as a file system: right bytes, exact counts, latency and limits, life and death.
#include "tests/pfs_sim/rig.h"

#include <linux/fuse.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "tests/pfs_sim/mount.h"
#include "tests/pfs_sim/rig_test_base.h"

namespace pfs_sim {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// No timing assertion here has an upper bound: these machines are busy.
class RigMount : public RigTest {};

TEST_F(RigMount, TreeReadThroughItIsTheSame) {
  StartRig({});
  TreeOptions tree;
  tree.files = 300;
  tree.dirs = 5;
  tree.size = {20000, 1.0};
  std::string why;
  ASSERT_TRUE(MakeTree(rig_->backing(), tree, &why)) << why;
  const TreeCheck check = CheckTree(rig_->mount(), tree);
  EXPECT_EQ(check.files_right, 300u) << check.first_wrong;
  const RigCounters counters = rig_->Counters();
  EXPECT_EQ(counters.bytes_read, TreeBytes(tree));
  EXPECT_EQ(counters.opens, 300u);
  EXPECT_TRUE(WaitForIdle());
}

TEST_F(RigMount, CountsEachOperationOnce) {
  StartRig({});
  constexpr uint64_t kFiles = 50;
  for (uint64_t i = 0; i < kFiles; ++i) WriteBacking("f" + std::to_string(i), "0123456789");
  for (uint64_t i = 0; i < kFiles; ++i) {
    ASSERT_EQ(ReadFile(Mounted("f" + std::to_string(i))), "0123456789");
  }
  RigCounters counters = rig_->Counters();
  EXPECT_EQ(counters.lookups, kFiles);
  EXPECT_EQ(counters.opens, kFiles);
  EXPECT_EQ(counters.reads, kFiles);
  EXPECT_EQ(counters.bytes_read, kFiles * 10);
  EXPECT_TRUE(WaitForIdle());
  for (int i = 0; i < 3; ++i) ReadFile(Mounted("f7"));  // each open drops the cached pages
  const auto paths = rig_->PathCounters("f7");
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_EQ(paths.at("f7").opens, 4u);
  EXPECT_EQ(paths.at("f7").reads, 4u);
  EXPECT_EQ(paths.at("f7").bytes, 40u);
  EXPECT_EQ(rig_->PathCounters().size(), kFiles);
  Control("counters reset");
  counters = rig_->Counters();
  EXPECT_EQ(counters.opens + counters.reads + counters.lookups + counters.bytes_read, 0u);
  EXPECT_TRUE(rig_->PathCounters().empty());
}

TEST_F(RigMount, KeepCacheReadsTheBackingOnce) {
  StartRig({.keep_cache = true});
  WriteBacking("f", "0123456789");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(ReadFile(Mounted("f")), "0123456789");
  EXPECT_EQ(rig_->Counters().opens, 3u);
  EXPECT_EQ(rig_->Counters().reads, 1u);
}

TEST_F(RigMount, LatencyIsTheLeastAnOperationTakes) {
  StartRig({.latency_us = 20000});
  WriteBacking("f", "x");
  EXPECT_GE(Time([&] { ReadFile(Mounted("f")); }), milliseconds(60));  // lookup, open, read
  Control("latency all 0");
  Control("latency open 30000");
  EXPECT_GE(Time([&] { ReadFile(Mounted("f")); }), milliseconds(30));
}

// Exactly these, by what the answers were made to wait.
TEST_F(RigMount, LatencyIsOfWhatCostsARoundTripAndOfNothingElse) {
  StartRig({.latency_us = 1000});
  WriteBacking("f", "x");
  StatOf(rig_->mount());
  EXPECT_EQ(ReadFile(Mounted("f")), "x");
  for (const auto& entry : fs::directory_iterator(rig_->mount())) EXPECT_EQ(entry.path().filename(), "f");
  struct statvfs space {};
  EXPECT_EQ(statvfs(rig_->mount().c_str(), &space), 0);
  const int fd = open(Mounted("f").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(lseek(fd, 0, SEEK_DATA), 0);
  close(fd);
  ASSERT_TRUE(WaitForIdle());
  RigCounters counters = rig_->Counters();
  for (const char* op : {"lookup", "getattr", "open", "read", "readdir", "opendir", "statfs", "lseek", "release", "other"}) {
    EXPECT_GT(counters.ops[op].count, 0u) << op;
    const bool free = std::set<std::string>{"opendir", "statfs", "lseek", "release", "other"}.contains(op);
    EXPECT_EQ(counters.ops[op].latency_us, free ? 0 : 1000 * counters.ops[op].count) << op;
  }
}

// ENOSYS is the one answer that the kernel takes for "never ask again".
TEST_F(RigMount, FlushIsAskedForOnce) {
  StartRig({});
  WriteBacking("f", "x");
  Control("counters reset");  // the kernel's INIT
  for (int i = 0; i < 3; ++i) {
    ReadFile(Mounted("f"));
    RigCounters counters = rig_->Counters();
    EXPECT_EQ(counters.ops["other"].count, 1u);
    EXPECT_EQ(counters.ops["other"].errors, 1u);
  }
}

// Without the first, opens and lookups in one directory come one after the other: 900 files/s instead of 30,000, which no bar of a test on a busy machine tells apart.
TEST_F(RigMount, TellsTheKernelWhatItTakesAtOnce) {
  StartRig({});
  const uint64_t flags = nlohmann::json::parse(Control("status"))["init_flags"];
  for (const uint64_t flag : {FUSE_PARALLEL_DIROPS, FUSE_ASYNC_READ, FUSE_MAX_PAGES}) EXPECT_EQ(flags & flag, flag);
}

TEST_F(RigMount, BandwidthLimitsAllReadsTogether) {
  StartRig({.bandwidth = 10'000'000});
  for (const char* name : {"a", "b"}) WriteBacking(name, Sample(name, 1'000'000));
  const auto took = Time([&] {
    std::thread other([&] { EXPECT_EQ(ReadFile(Mounted("b")), Sample("b", 1'000'000)); });
    EXPECT_EQ(ReadFile(Mounted("a")), Sample("a", 1'000'000));
    other.join();
  });
  EXPECT_GE(took, milliseconds(199));
}

TEST_F(RigMount, ConcurrencyLimitServesOneAfterTheOther) {
  StartRig({.latency_us = 10000, .concurrency = 1});
  std::vector<std::thread> clients;
  const auto took = Time([&] {
    for (int i = 0; i < 8; ++i) {
      clients.emplace_back([&, i] { StatErrno(Mounted("none" + std::to_string(i))); });
    }
    for (std::thread& client : clients) client.join();
  });
  EXPECT_GE(took, milliseconds(80));
  Control("concurrency 0");
  Control("latency all 0");
  EXPECT_EQ(StatErrno(Mounted("none")), ENOENT);
}

TEST_F(RigMount, ShowsTheBackingsInodesAndStamps) {
  StartRig({});
  WriteBacking("f", "x");
  const struct stat shown = StatOf(Mounted("f"));
  const struct stat real = StatOf(Backing("f"));
  EXPECT_EQ(shown.st_ino, real.st_ino);
  EXPECT_EQ(shown.st_mtim.tv_nsec, real.st_mtim.tv_nsec);
  EXPECT_EQ(shown.st_ctim.tv_nsec, real.st_ctim.tv_nsec);
}

TEST_F(RigMount, SharedMappingsWork) {
  StartRig({});
  const std::string sample = Sample("f", 100000);
  WriteBacking("f", sample);
  const int fd = open(Mounted("f").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  void* map = mmap(nullptr, sample.size(), PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_EQ(memcmp(map, sample.data(), sample.size()), 0);
  munmap(map, sample.size());
  close(fd);
}

TEST_F(RigMount, OpenFilesOutliveReplacementAndUnlink) {
  StartRig({.timeout_ms = 0});
  WriteBacking("f", "old bytes");
  const struct stat old = StatOf(Mounted("f"));
  const int fd = open(Mounted("f").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  WriteBacking("g", "new");
  fs::rename(Backing("g"), Backing("f"));
  EXPECT_EQ(ReadAt(fd, 100, 0), "old bytes");
  struct stat st {};
  ASSERT_EQ(fstat(fd, &st), 0) << strerror(errno);
  EXPECT_EQ(st.st_ino, old.st_ino);
  EXPECT_EQ(ReadFile(Mounted("f")), "new");
  EXPECT_EQ(ReadFile("/proc/self/fd/" + std::to_string(fd)), "old bytes");
  close(fd);
}

TEST_F(RigMount, ReplacedFileIsFoundEvenBehindAFreshEntry) {
  StartRig({});  // the entry is cached for 1 s
  WriteBacking("f", "old bytes");
  EXPECT_EQ(ReadFile(Mounted("f")), "old bytes");
  WriteBacking("g", "new");
  fs::rename(Backing("g"), Backing("f"));
  // The cached inode is gone: ESTALE inside, and the kernel looks the name up again.
  EXPECT_EQ(ReadFile(Mounted("f")), "new");
}

TEST_F(RigMount, OddFilesAndNames) {
  StartRig({});
  const std::string names[] = {"with space", "new\nline", "quote\"\\", "\xff\xfe not utf8", "-rf", "*?[x]",
                               std::string(255, 'n')};
  for (const std::string& name : names) WriteBacking(name, name);
  WriteBacking("empty", "");
  fs::create_directory_symlink("empty-dir", Backing("dangling"));
  fs::create_symlink("empty", Backing("link"));
  std::set<std::string> listed;
  for (const auto& entry : fs::directory_iterator(rig_->mount())) listed.insert(entry.path().filename());
  for (const std::string& name : names) {
    EXPECT_EQ(ReadFile(Mounted(name)), name);
    EXPECT_TRUE(listed.contains(name)) << name;
  }
  EXPECT_EQ(ReadFile(Mounted("empty")), "");
  EXPECT_EQ(ReadFile(Mounted("link")), "");
  EXPECT_EQ(fs::read_symlink(Mounted("dangling")), "empty-dir");
  EXPECT_EQ(StatErrno(Mounted(std::string(256, 'n'))), ENAMETOOLONG);
}

TEST_F(RigMount, SparseFileBeyond4GiB) {
  StartRig({});
  constexpr off_t kFar = (off_t{4} << 30) + 12345;
  const int out = open(Backing("big").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(out, 0);
  ASSERT_EQ(pwrite(out, "far away", 8, kFar), 8);
  ASSERT_EQ(ftruncate(out, off_t{5} << 30), 0);
  close(out);
  EXPECT_EQ(StatOf(Mounted("big")).st_size, off_t{5} << 30);
  const int fd = open(Mounted("big").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ReadAt(fd, 8, kFar), "far away");
  EXPECT_EQ(ReadAt(fd, 4, off_t{3} << 30), std::string(4, '\0'));
  EXPECT_LE(lseek(fd, 0, SEEK_DATA), kFar);
  close(fd);
}

TEST_F(RigMount, LargeDirectoryIsListedWhole) {
  StartRig({});
  constexpr size_t kFiles = 20000;
  const int dir = open(rig_->backing().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (size_t i = 0; i < kFiles; ++i) {
    close(openat(dir, ("file" + std::to_string(i)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  }
  close(dir);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(rig_->mount())) names.insert(entry.path().filename());
  EXPECT_EQ(names.size(), kFiles);
}

TEST_F(RigMount, ModificationsReachTheBacking) {
  StartRig({});
  fs::create_directory(Mounted("d"));
  {
    std::ofstream(Mounted("d/f"), std::ios::binary) << Sample("f", 3000000);
  }
  EXPECT_EQ(ReadFile(Backing("d/f")), Sample("f", 3000000));
  EXPECT_EQ(rig_->Counters().bytes_written, 3000000u);
  fs::rename(Mounted("d/f"), Mounted("d/g"));
  fs::resize_file(Mounted("d/g"), 1000);
  EXPECT_EQ(ReadFile(Backing("d/g")), Sample("f", 1000));
  fs::create_hard_link(Mounted("d/g"), Mounted("h"));
  fs::create_symlink("d/g", Mounted("s"));
  EXPECT_EQ(ReadFile(Mounted("s")), Sample("f", 1000));
  EXPECT_EQ(StatOf(Mounted("h")).st_nlink, 2u);
  fs::permissions(Mounted("h"), fs::perms::owner_read);
  EXPECT_EQ(StatOf(Backing("d/g")).st_mode & 0777, 0400u);
  const timespec stamps[2] = {{1000000000, 5}, {1100000000, 7}};
  ASSERT_EQ(utimensat(AT_FDCWD, Mounted("h").c_str(), stamps, 0), 0);
  EXPECT_EQ(StatOf(Backing("h")).st_mtim.tv_sec, 1100000000);
  EXPECT_EQ(StatOf(Backing("h")).st_mtim.tv_nsec, 7);
  fs::remove_all(Mounted("d"));
  fs::remove(Mounted("h"));
  fs::remove(Mounted("s"));
  EXPECT_TRUE(fs::is_empty(rig_->backing()));
}

TEST_F(RigMount, KernelChecksModesForOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become someone else";
  StartRig({});
  WriteBacking("secret", "x");
  ASSERT_EQ(chmod(Backing("secret").c_str(), 0600), 0);
  ASSERT_EQ(chmod(fs::path(rig_->mount()).parent_path().c_str(), 0755), 0);
  const std::string path = Mounted("secret");
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    _exit(open(path.c_str(), O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(RigMount, NoSignalLeavesAMountBehind) {
  for (const int signal_number : {SIGTERM, SIGINT, SIGKILL}) {
    StartRig({});
    ASSERT_NE(rig_, nullptr);
    const std::string mount = rig_->mount();
    WriteBacking("f", "x");
    const int fd = open(Mounted("f").c_str(), O_RDONLY | O_CLOEXEC);  // a user keeps it busy
    EXPECT_TRUE(IsMounted(mount));
    EXPECT_TRUE(rig_->Stop(signal_number)) << signal_number;
    EXPECT_FALSE(IsMounted(mount));
    close(fd);
    rig_.reset();
    EXPECT_FALSE(fs::exists(mount));
  }
}

TEST_F(RigMount, HungRequestsDoNotKeepItAlive) {
  StartRig({.timeout_ms = 0});
  WriteBacking("f", "x");
  Control("fault add op=open errno=hang");
  std::string got;
  std::thread reader([&] { got = ReadFile(Mounted("f")); });
  ASSERT_TRUE(WaitForHung(1));
  EXPECT_TRUE(rig_->Stop(SIGTERM));
  reader.join();
  EXPECT_TRUE(got.starts_with("errno ")) << got;
}

TEST_F(RigMount, EndsWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string why;
    const auto rig = Rig::Start({}, &why);
    const std::string answer = rig == nullptr ? why : rig->mount();
    if (write(ends[1], answer.data(), answer.size()) < 0) _exit(1);
    _exit(0);  // without the destructor
  }
  close(ends[1]);
  char mount[4096] = "";
  ASSERT_GT(read(ends[0], mount, sizeof(mount) - 1), 0);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  if (mount[0] != '/') GTEST_SKIP() << mount;
  for (int i = 0; i < 10000 && IsMounted(mount); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(IsMounted(mount));
  fs::remove_all(fs::path(mount).parent_path());
}

TEST_F(RigMount, UnmountFromOutsideEndsTheServer) {
  StartRig({});
  UnmountLazily(rig_->mount());
  EXPECT_TRUE(rig_->Stop(0));
}

TEST_F(RigMount, RefusesWhatItCannotServe) {
  std::string why;
  EXPECT_EQ(Rig::Start({.backing = "/none"}, &why), nullptr);
  EXPECT_EQ(why, "error: /none: No such file or directory");
}

}  // namespace
}  // namespace pfs_sim
