// Whole-file reads and stats: what arrives, what is refused, and what the stats say.
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/io/engine_test_base.h"
#include "tierd/io/file_access.h"

namespace tierd::io {
namespace {

class FileRead : public BothEngines {};

TEST_P(FileRead, BringsTheContentOfAnySize) {
  MAKE_ENGINE();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{784}, std::size_t{65536}, std::size_t{1'000'001}}) {
    const std::string name = "file" + std::to_string(size);
    const std::string bytes = WriteContent(name, size);
    const FileOutcome outcome = Read(name);
    EXPECT_EQ(outcome.result.error, 0) << size;
    EXPECT_TRUE(outcome.bytes == bytes) << size;
    EXPECT_TRUE(outcome.result.opened);
    EXPECT_EQ(outcome.result.before.size, size);
    EXPECT_TRUE(outcome.result.before.SameVersion(outcome.result.after));
    EXPECT_GT(outcome.result.stat_sent_ns, 0);
  }
}

TEST_P(FileRead, StopsAtTheCapacity) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 100'000);
  const FileOutcome outcome = Read("file", 4096);
  EXPECT_EQ(outcome.result.error, 0);
  EXPECT_TRUE(outcome.bytes == bytes.substr(0, 4096));
  EXPECT_EQ(outcome.result.after.size, 100'000U);
}

TEST_P(FileRead, OfNothingOpensTheFileAndStatsItOnce) {
  WriteContent("file", 12'345);
  MAKE_ENGINE();
  const auto nothing = [](FileReadRequest* request) { request->capacity = 0; };
  const FileOutcome outcome = Read("file", 4096, 0, nothing);
  EXPECT_EQ(outcome.result.error, 0);
  EXPECT_TRUE(outcome.result.opened);
  EXPECT_EQ(outcome.result.bytes, 0U);
  EXPECT_EQ(outcome.result.after.size, 12'345U);
  EXPECT_TRUE(outcome.result.before.SameVersion(outcome.result.after));
  EXPECT_EQ(Read("missing", 4096, 0, nothing).result.error, ENOENT);
  EXPECT_EQ(Read(".", 4096, 0, nothing).result.error, EINVAL);
}

TEST_P(FileRead, BeginsAtTheOffset) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 100'000);
  EXPECT_EQ(Read("file", 4096, 50'001).bytes, bytes.substr(50'001, 4096));
  EXPECT_EQ(Read("file", 4096, 99'999).bytes, bytes.substr(99'999));
  const FileOutcome beyond = Read("file", 4096, 100'000);
  EXPECT_EQ(beyond.result.error, 0);
  EXPECT_EQ(beyond.result.bytes, 0U);
  EXPECT_EQ(Read("file", 4096, 1ULL << 40).result.bytes, 0U);
}

TEST_P(FileRead, ReadsPastFourGiB) {
  MAKE_ENGINE();
  const std::uint64_t offset = (5ULL << 30) + 17;
  const UniqueFd file(::open(Path("sparse").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_EQ(::pwrite(file.get(), "deep", 4, static_cast<off_t>(offset)), 4);
  EXPECT_EQ(Read("sparse", 4096, offset).bytes, "deep");
  EXPECT_EQ(Read("sparse", 3, offset - 1).bytes, std::string("\0de", 3));
}

TEST_P(FileRead, StatShowsWhatStatShows) {
  MAKE_ENGINE();
  WriteContent("file", 12'345);
  struct stat st {};
  ASSERT_EQ(::stat(Path("file").c_str(), &st), 0);
  const FileStat read = Read("file").result.after;
  const StatResult stat = Stat("file");
  ASSERT_EQ(stat.error, 0);
  EXPECT_GT(stat.stat_sent_ns, 0);
  for (const FileStat& seen : {read, stat.stat}) {
    EXPECT_EQ(seen.dev, st.st_dev);
    EXPECT_EQ(seen.ino, st.st_ino);
    EXPECT_EQ(seen.size, 12'345U);
    EXPECT_EQ(seen.mtime_ns, st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec);
    EXPECT_EQ(seen.ctime_ns, st.st_ctim.tv_sec * 1'000'000'000 + st.st_ctim.tv_nsec);
    EXPECT_EQ(seen.mode, st.st_mode);
    EXPECT_EQ(seen.uid, st.st_uid);
    EXPECT_EQ(seen.gid, st.st_gid);
    EXPECT_EQ(seen.nlink, 1U);
  }
}

TEST_P(FileRead, StatOfRootLinkAndNothing) {
  MAKE_ENGINE();
  WriteContent("file", 10);
  ASSERT_EQ(::symlink("file", Path("link").c_str()), 0);
  EXPECT_TRUE(S_ISDIR(Stat("").stat.mode));
  EXPECT_TRUE(S_ISLNK(Stat("link").stat.mode));
  EXPECT_EQ(Stat("nothing").error, ENOENT);
  EXPECT_EQ(Stat("file/below").error, ENOTDIR);
}

// As a read: what is known by such a name would be known by two.
TEST_P(FileRead, StatFollowsNoLinkOnTheWay) {
  MAKE_ENGINE();
  ASSERT_EQ(::mkdir(Path("dir").c_str(), 0700), 0);
  WriteContent("dir/file", 100);
  ASSERT_EQ(::symlink("file", Path("dir/link").c_str()), 0);
  ASSERT_EQ(::symlink("dir", Path("inside").c_str()), 0);
  ASSERT_EQ(::symlink("/etc", Path("outside").c_str()), 0);
  const std::size_t before = OpenDescriptors();
  EXPECT_EQ(Stat("inside/file").error, ELOOP);
  EXPECT_EQ(Stat("outside/passwd").error, ELOOP);
  EXPECT_EQ(Stat("inside/").error, ELOOP);
  EXPECT_EQ(Stat("../file").error, EXDEV);
  EXPECT_EQ(Stat("..").error, EXDEV);
  EXPECT_EQ(Stat("/etc/passwd").error, EXDEV);
  EXPECT_EQ(Stat("dir/nothing").error, ENOENT);
  EXPECT_EQ(Stat("nothing/file").error, ENOENT);
  const StatResult file = Stat("dir/file");
  EXPECT_EQ(file.stat.size, 100U);
  EXPECT_GT(file.stat_sent_ns, 0);
  EXPECT_TRUE(S_ISLNK(Stat("dir/link").stat.mode));
  EXPECT_TRUE(S_ISDIR(Stat("dir/").stat.mode));
  EXPECT_EQ(OpenDescriptors(), before);
}

// An answer counts from when its name was asked for: another file may have got the name before the stat (HAZARDS 2.11).
TEST_P(FileRead, StatIsAsOldAsItsName) {
  std::int64_t named_ns = 0;
  ScriptedFaults slow([&](Step step, long result) {
    if (step != Step::kStat || named_ns != 0) return result;
    named_ns = PreciseNs();
    return result;
  });
  MAKE_ENGINE({.faults = &slow});
  ASSERT_EQ(::mkdir(Path("dir").c_str(), 0700), 0);
  WriteContent("dir/file", 100);
  EXPECT_LT(Stat("dir/file").stat_sent_ns, named_ns);
  engine_.reset();
}

TEST_P(FileRead, SaysWhyNot) {
  MAKE_ENGINE();
  WriteContent("file", 10);
  ASSERT_EQ(::mkdir(Path("dir").c_str(), 0700), 0);
  EXPECT_EQ(Read("nothing").result.error, ENOENT);
  EXPECT_FALSE(Read("nothing").result.opened);
  EXPECT_EQ(Read("file/below").result.error, ENOTDIR);
  EXPECT_EQ(Read("dir").result.error, EINVAL);
  EXPECT_EQ(Read(std::string(300, 'x')).result.error, ENAMETOOLONG);
}

// In a process of its own, which gives up root if it has it.
TEST_P(FileRead, PermissionIsTheKernels) {
  WriteContent("file", 10);
  ASSERT_EQ(::chmod(Path("file").c_str(), 0), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(2);
    Make();
    if (engine_ == nullptr) ::_exit(77);
    ::_exit(Read("file").result.error == EACCES ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no such engine here";
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "may not become another user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_P(FileRead, FifoNeitherBlocksNorLosesBytes) {
  MAKE_ENGINE();
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(Read("fifo").result.error, EINVAL);
  const UniqueFd both(::open(Path("fifo").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ASSERT_EQ(::write(both.get(), "mine", 4), 4);
  EXPECT_EQ(Read("fifo").result.error, EINVAL);
  char bytes[8];
  EXPECT_EQ(::read(both.get(), bytes, sizeof bytes), 4);
}

TEST_P(FileRead, DeviceIsRefused) {
  MAKE_ENGINE();
  const UniqueFd dev(::open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const FileOutcome outcome = Read("null", 4096, 0, [&](FileReadRequest* request) { request->root_fd = dev.get(); });
  EXPECT_EQ(outcome.result.error, EINVAL);
}

TEST_P(FileRead, LinksAreFollowedOnlyWhenAskedAndOnlyBeneathTheRoot) {
  MAKE_ENGINE();
  ASSERT_EQ(::mkdir(Path("dir").c_str(), 0700), 0);
  const std::string bytes = WriteContent("dir/file", 100);
  ASSERT_EQ(::symlink("dir/file", Path("inside").c_str()), 0);
  ASSERT_EQ(::symlink("dir", Path("dirlink").c_str()), 0);
  ASSERT_EQ(::symlink("/etc/passwd", Path("absolute").c_str()), 0);
  ASSERT_EQ(::symlink("../../../../../../../etc/passwd", Path("outside").c_str()), 0);
  const auto follow = [](FileReadRequest* request) { request->follow_symlinks = true; };

  for (const char* name : {"inside", "dirlink/file", "absolute", "outside"}) EXPECT_EQ(Read(name).result.error, ELOOP) << name;
  EXPECT_TRUE(Read("inside", 0, 0, follow).bytes == bytes);
  EXPECT_TRUE(Read("dirlink/file", 0, 0, follow).bytes == bytes);
  EXPECT_EQ(Read("absolute", 0, 0, follow).result.error, EXDEV);
  EXPECT_EQ(Read("outside", 0, 0, follow).result.error, EXDEV);
}

TEST_P(FileRead, NothingAboveTheRoot) {
  MAKE_ENGINE();
  ASSERT_EQ(::mkdir(Path("root").c_str(), 0700), 0);
  WriteContent("secret", 10);
  const UniqueFd below(::open(Path("root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const bool follow : {false, true}) {
    for (const char* name : {"../secret", "..", "./../secret"}) {
      const FileOutcome outcome = Read(name, 0, 0, [&](FileReadRequest* request) {
        request->root_fd = below.get();
        request->follow_symlinks = follow;
      });
      EXPECT_EQ(outcome.result.error, EXDEV) << name;
    }
    const FileOutcome absolute = Read(Path("secret"), 0, 0, [&](FileReadRequest* request) {
      request->root_fd = below.get();
      request->follow_symlinks = follow;
    });
    EXPECT_EQ(absolute.result.error, EXDEV);
  }
}

TEST_P(FileRead, DirectOrBufferedTheBytesAreTheSame) {
  MAKE_ENGINE();
  for (const std::size_t size : {std::size_t{4096}, std::size_t{100'000}, std::size_t{10}}) {
    const std::string bytes = WriteContent("file" + std::to_string(size), size);
    const auto direct = [](FileReadRequest* request) { request->direct = true; };
    const FileOutcome outcome = Read("file" + std::to_string(size), 1 << 20, 0, direct);
    EXPECT_EQ(outcome.result.error, 0) << size;
    EXPECT_TRUE(outcome.bytes == bytes) << size;
  }
}

// How much of the file is in the page cache, 0 to 1; -1 where nobody may know (system call filters).
double CachedPart(int fd, std::size_t size) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  EXPECT_NE(at, MAP_FAILED);
  const bool told = ::mincore(at, size, pages.data()) == 0;
  ::munmap(at, size);
  if (!told) return -1;
  const auto cached = std::count_if(pages.begin(), pages.end(), [](unsigned char flags) { return (flags & 1) != 0; });
  return static_cast<double>(cached) / static_cast<double>(pages.size());
}

// What was read once is in a tier: a second copy would be memory that the training job has not got.
TEST_P(FileRead, KeepsTheCacheOnlyWhenAsked) {
  MAKE_ENGINE();
  constexpr std::size_t kSize = 100'000;
  const std::string bytes = WriteContent("file", kSize);
  const UniqueFd file(::open(Path("file").c_str(), O_RDONLY | O_CLOEXEC));
  struct statfs fs {};
  ASSERT_EQ(::fstatfs(file.get(), &fs), 0);
  if (fs.f_type == TMPFS_MAGIC) GTEST_SKIP() << "files in memory are the page cache";
  if (CachedPart(file.get(), kSize) < 0) GTEST_SKIP() << "mincore: " << std::strerror(errno);
  ASSERT_EQ(::fsync(file.get()), 0);  // what is not on the disk is not dropped
  ASSERT_EQ(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  ASSERT_EQ(CachedPart(file.get(), kSize), 0);
  EXPECT_TRUE(Read("file").bytes == bytes);
  EXPECT_EQ(CachedPart(file.get(), kSize), 0);
  EXPECT_TRUE(Read("file", 0, 0, [](FileReadRequest* request) { request->drop_cache = false; }).bytes == bytes);
  EXPECT_EQ(CachedPart(file.get(), kSize), 1);
}

TEST_P(FileRead, LeavesNoDescriptor) {
  MAKE_ENGINE();
  WriteContent("file", 10);
  ASSERT_EQ(::mkdir(Path("dir").c_str(), 0700), 0);
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  const std::size_t before = OpenDescriptors();
  for (const char* name : {"file", "dir", "fifo", "nothing"}) Read(name);
  EXPECT_EQ(OpenDescriptors(), before);
}

INSTANTIATE_FOR_BOTH_ENGINES(FileRead);

}  // namespace
}  // namespace tierd::io
