// Segments of each kind of page: that they are what they say, whole, sealed, and read-only for those who get them.
#include "tierd/ram/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "client_lib/abi/layout.h"
#include "tierd/ram/shared_file.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t kBytes = 4 << 20;

std::string SelfFd(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

constexpr int kMayNotBecomeNobody = 77;

// Runs `body` in a child under an unprivileged uid and gives its exit status; kMayNotBecomeNobody when that uid cannot be taken.
template <typename Body>
int AsNobody(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(kMayNotBecomeNobody);
    ::prctl(PR_SET_DUMPABLE, 1);  // as after an exec
    ::_exit(body());
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Result<PrivateTmpfs> MakeTmpfs() {
  const Result<UniqueFd> user_namespace = MakeUserNamespace();
  return PrivateTmpfs::Create(user_namespace.ok() ? user_namespace->get() : -1);
}

struct Kind {
  abi::PageKind pages;
  SegmentSeal seal;
  bool in_tmpfs;
};

std::string NameOf(const Kind& kind) {
  const std::string pages = kind.pages == abi::PageKind::k4KiB ? "small" : PageKindName(kind.pages);
  if (kind.in_tmpfs) return pages + "_private";
  return pages + (kind.seal == SegmentSeal::kShrink ? "_memfd_unsealed" : "_memfd");
}

class SegmentOfKind : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam().in_tmpfs && !tmpfs.ok()) GTEST_SKIP() << tmpfs.status().message();
    SegmentFactory factory(Options(tmpfs));
    Result<Segment> made = factory.Create(kBytes);
    if (!made.ok() && GetParam().pages != abi::PageKind::k4KiB) GTEST_SKIP() << made.status().message();
    ASSERT_TRUE(made.ok()) << made.status().message();
    segment = std::move(*made);
  }
  static SegmentOptions Options(const Result<PrivateTmpfs>& tmpfs) {
    SegmentOptions options;
    options.force_kind = GetParam().pages;
    options.seal = GetParam().seal;
    if (GetParam().in_tmpfs) options.tmpfs = &*tmpfs;
    return options;
  }
  bool MayBePunched() const { return GetParam().in_tmpfs || GetParam().seal == SegmentSeal::kShrink; }

  Result<PrivateTmpfs> tmpfs = MakeTmpfs();
  Segment segment;
};

TEST_P(SegmentOfKind, IsMappedWholeAndWritable) {
  EXPECT_EQ(segment.page_kind(), GetParam().pages);
  EXPECT_EQ(segment.bytes(), kBytes);
  EXPECT_EQ(segment.serial(), 1u);
  EXPECT_FALSE(segment.reason().empty());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment.data()) % (2 << 20), 0u);
  struct stat st {};
  ASSERT_EQ(::fstat(segment.client_fd(), &st), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(st.st_size), kBytes);
  EXPECT_GE(static_cast<std::uint64_t>(st.st_blocks) * 512, GetParam().pages == abi::PageKind::kHugetlb ? 0 : kBytes);
  EXPECT_EQ(st.st_mode & 0777u, 0400u);
  std::memset(segment.data(), 0x5a, kBytes);
}

TEST_P(SegmentOfKind, ClientDescriptorReadsWhatTheDaemonWrites) {
  void* view = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, segment.client_fd(), 0);
  ASSERT_NE(view, MAP_FAILED);
  std::memset(segment.data() + 12345, 0x7e, 100);
  EXPECT_EQ(std::memcmp(static_cast<std::byte*>(view) + 12345, segment.data() + 12345, 100), 0);
  EXPECT_NE(::mprotect(view, kBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(errno, EACCES);
  ::munmap(view, kBytes);
}

TEST_P(SegmentOfKind, ClientDescriptorCannotWriteOrResize) {
  EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.client_fd(), 0), MAP_FAILED);
  EXPECT_NE(::ftruncate(segment.client_fd(), 0), 0);
  EXPECT_NE(::fallocate(segment.client_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 << 20), 0);
  EXPECT_LT(::write(segment.client_fd(), "x", 1), 0);
  if (GetParam().in_tmpfs) {
    // No seals there: the read-only mount refuses even the owner.
    EXPECT_LT(::open(SelfFd(segment.client_fd()).c_str(), O_RDWR), 0);
    EXPECT_EQ(errno, EROFS);
    EXPECT_NE(::fchmod(segment.client_fd(), 0600), 0);
    return;
  }
  EXPECT_EQ(::fcntl(segment.client_fd(), F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST_P(SegmentOfKind, AnotherUserCannotReopenItWritable) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const int fd = segment.client_fd();
  const int outcome = AsNobody([fd] {
    if (::open(SelfFd(fd).c_str(), O_RDWR) >= 0) return 1;
    if (::fchmod(fd, 0600) == 0) return 2;
    if (::ftruncate(fd, 0) == 0) return 3;
    return 0;
  });
  if (outcome == kMayNotBecomeNobody) GTEST_SKIP() << "may not become another user";
  EXPECT_EQ(outcome, 0);
}

// What a client can do with its descriptor and the same uid: change the mode of the file and open
// it again. 0, or the number of the door that was open.
int DoorThatIsOpen(int client_fd) {
  (void)::fchmod(client_fd, 0600);
  const int fd = ::open(SelfFd(client_fd).c_str(), O_RDWR);
  if (fd >= 0) {
    if (::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED) return 1;
    if (::pwrite(fd, "x", 1, 0) >= 0) return 2;
    if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 << 20) == 0) return 3;
    if (::ftruncate(fd, 0) == 0) return 4;
  }
  void* const view = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, client_fd, 0);
  if (view == MAP_FAILED) return 5;
  if (::madvise(view, kBytes, MADV_REMOVE) == 0) return 6;
  const int memory = ::open("/proc/self/mem", O_RDWR);
  if (memory >= 0 && ::pwrite(memory, "x", 1, reinterpret_cast<off_t>(view)) >= 0) return 7;
  // A mount that nobody else has can be copied and made writable by the owner of its namespace.
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 0;
  constexpr long kOpenTree = 428, kMountSetattr = 442;
  if (::syscall(kOpenTree, client_fd, "", AT_EMPTY_PATH | 1) >= 0) return 8;
  struct {
    std::uint64_t set = 0, clear = 1, propagation = 0, user_namespace = 0;  // clear MOUNT_ATTR_RDONLY
  } attributes;
  if (::syscall(kMountSetattr, client_fd, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0) return 9;
  if (::mount(nullptr, SelfFd(client_fd).c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr) == 0) return 10;
  return 0;
}

TEST_P(SegmentOfKind, TheSameUserCannotWriteIntoIt) {
  if (GetParam().seal == SegmentSeal::kShrink) GTEST_SKIP() << "does not promise it";
  const int outcome = AsNobody([] {
    const Result<PrivateTmpfs> own = MakeTmpfs();
    if (GetParam().in_tmpfs && !own.ok()) return 100;
    SegmentFactory factory(Options(own));
    const Result<Segment> made = factory.Create(kBytes);
    return made.ok() ? DoorThatIsOpen(made->client_fd()) : 101;
  });
  if (outcome == kMayNotBecomeNobody) GTEST_SKIP() << "may not become another user";
  EXPECT_EQ(outcome, 0);
}

TEST_P(SegmentOfKind, PunchGivesMemoryBackAndReadsAsZero) {
  if (!MayBePunched()) {
    EXPECT_EQ(segment.Punch(0, segment.PunchUnit()).code(), Code::kPermission);
    return;
  }
  const std::uint64_t unit = segment.PunchUnit();
  std::memset(segment.data(), 1, kBytes);
  void* view = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, segment.client_fd(), 0);
  ASSERT_NE(view, MAP_FAILED);
  ASSERT_TRUE(segment.Punch(unit, unit).ok());
  struct stat st {};
  ASSERT_EQ(::fstat(segment.client_fd(), &st), 0);
  EXPECT_LE(static_cast<std::uint64_t>(st.st_blocks) * 512, kBytes - unit);
  EXPECT_EQ(static_cast<const unsigned char*>(view)[unit], 0);
  EXPECT_EQ(static_cast<const unsigned char*>(view)[unit - 1], 1);
  ::munmap(view, kBytes);
  EXPECT_EQ(segment.Punch(1, unit).code(), Code::kInvalid);
  EXPECT_EQ(segment.Punch(0, 2 * kBytes).code(), Code::kInvalid);
  EXPECT_EQ(segment.Punch(~std::uint64_t{0} / unit * unit, unit).code(), Code::kInvalid);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SegmentOfKind,
                         testing::Values(Kind{abi::PageKind::k4KiB, SegmentSeal::kAuto, true},
                                         Kind{abi::PageKind::kTmpfsHuge, SegmentSeal::kAuto, true},
                                         Kind{abi::PageKind::k4KiB, SegmentSeal::kAuto, false},
                                         Kind{abi::PageKind::kShmemHuge, SegmentSeal::kAuto, false},
                                         Kind{abi::PageKind::kHugetlb, SegmentSeal::kAuto, false},
                                         Kind{abi::PageKind::k4KiB, SegmentSeal::kShrink, false},
                                         Kind{abi::PageKind::kShmemHuge, SegmentSeal::kShrink, false}),
                         [](const auto& param) { return NameOf(param.param); });

TEST(SegmentFactory, ChoosesTheBestKindAndSaysWhy) {
  SegmentFactory factory{SegmentOptions{}};
  Result<Segment> segment = factory.Create(kBytes);
  ASSERT_TRUE(segment.ok()) << segment.status().message();
  std::printf("%s: %s\n", PageKindName(segment->page_kind()), segment->reason().c_str());
  if (segment->page_kind() == abi::PageKind::kShmemHuge || segment->page_kind() == abi::PageKind::kTmpfsHuge) {
    EXPECT_GE(HugeMappedBytes(segment->data(), kBytes), kBytes / 2);
  }
}

TEST(SegmentFactory, FallsBackWhenTheKnobIsOff) {
  const std::string knob = testing::TempDir() + "/shmem_enabled_" + std::to_string(::getpid());
  std::ofstream(knob) << "always within_size advise [never] deny force\n";
  SegmentOptions options;
  options.shmem_enabled_path = knob;
  options.force_kind = abi::PageKind::kShmemHuge;
  SegmentFactory forced(options);
  Result<Segment> refused = forced.Create(kBytes);
  EXPECT_EQ(refused.status().code(), Code::kUnsupported);
  EXPECT_NE(refused.status().message().find("never"), std::string::npos);
  options.force_kind.reset();
  SegmentFactory any(options);
  Result<Segment> segment = any.Create(kBytes);
  ::unlink(knob.c_str());
  ASSERT_TRUE(segment.ok()) << segment.status().message();
  EXPECT_NE(segment->page_kind(), abi::PageKind::kShmemHuge);
  // A machine with a hugetlb pool never looks at the knob.
  if (segment->page_kind() != abi::PageKind::kHugetlb) {
    EXPECT_NE(segment->reason().find("shmem_enabled is never"), std::string::npos);
  }
}

TEST(SegmentFactory, SerialsAreNeverReused) {
  SegmentOptions options;
  options.force_kind = abi::PageKind::k4KiB;
  SegmentFactory factory(options);
  std::uint32_t last = 0;
  for (int i = 0; i < 5; ++i) {
    Result<Segment> segment = factory.Create(64 << 10);
    ASSERT_TRUE(segment.ok());
    EXPECT_GT(segment->serial(), last);
    last = segment->serial();
  }
}

TEST(SegmentFactory, RefusesSizesItCannotMake) {
  SegmentFactory factory{SegmentOptions{}};
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{65537}, abi::kMaxSegmentBytes + 4096}) {
    EXPECT_EQ(factory.Create(bytes).status().code(), Code::kInvalid) << bytes;
  }
}

TEST(SegmentFactory, OddSizesGetSmallPages) {
  SegmentFactory factory{SegmentOptions{}};
  Result<Segment> segment = factory.Create((2 << 20) + 4096);
  ASSERT_TRUE(segment.ok());
  EXPECT_EQ(segment->page_kind(), abi::PageKind::k4KiB);
}

// Whoever asks for seals gets no file that has none.
TEST(SegmentFactory, WriteSealForbidsPunchingAlsoWhereThereIsATmpfs) {
  const Result<PrivateTmpfs> tmpfs = MakeTmpfs();
  SegmentOptions options;
  options.force_kind = abi::PageKind::k4KiB;
  options.seal = SegmentSeal::kWrite;
  if (tmpfs.ok()) options.tmpfs = &*tmpfs;
  SegmentFactory factory(options);
  Result<Segment> segment = factory.Create(64 << 10);
  ASSERT_TRUE(segment.ok());
  EXPECT_EQ(segment->Punch(0, 4096).code(), Code::kPermission);
}

TEST(SegmentFactory, WorksInAProcessThatCannotBeDumped) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_DUMPABLE, 0);
    SegmentFactory factory{SegmentOptions{}};
    ::_exit(factory.Create(kBytes).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(SegmentFactory, UnprivilegedUserGetsSegmentsToo) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const int outcome = AsNobody([] {
    SegmentFactory factory{SegmentOptions{}};
    Result<Segment> segment = factory.Create(kBytes);
    if (!segment.ok()) return 1;
    const Result<PrivateTmpfs> tmpfs = MakeTmpfs();
    if (!tmpfs.ok()) return tmpfs.status().code() == Code::kUnsupported ? 0 : 3;
    SegmentOptions in_tmpfs;
    in_tmpfs.force_kind = abi::PageKind::kTmpfsHuge;
    in_tmpfs.tmpfs = &*tmpfs;
    SegmentFactory namespaced(in_tmpfs);
    Result<Segment> huge = namespaced.Create(kBytes);
    if (huge.ok()) return 0;
    return huge.status().code() == Code::kUnsupported ? 0 : 2;
  });
  if (outcome == kMayNotBecomeNobody) GTEST_SKIP() << "may not become another user";
  EXPECT_EQ(outcome, 0);
}

}  // namespace
}  // namespace tierd::ram
