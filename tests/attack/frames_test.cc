// A process of the same user tries to write into the cache: through the descriptors that it gets as
// a client, through the daemon, and through the children of the daemon. Daemon and attacker run as
// an unprivileged user, because root may do all of this.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tier/tier.h"

namespace {

constexpr int kMostReceived = 256;
int received[kMostReceived];
std::atomic<int> received_count{0};

}  // namespace

// In place of the C library's: libtier, which is linked here, receives its descriptors by it. They
// are kept for the attack.
extern "C" ssize_t recvmsg(int socket, msghdr* message, int flags) {
  const ssize_t got = ::syscall(SYS_recvmsg, socket, message, flags);
  if (got < 0) return got;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr;
       header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; header->cmsg_len >= CMSG_LEN(at + sizeof(int)); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
      const int slot = received_count.fetch_add(1);
      if (slot < kMostReceived) received[slot] = ::fcntl(fd, F_DUPFD_CLOEXEC, 100);
    }
  }
  return got;
}

namespace tierd::e2e {
namespace {

constexpr int kSkipped = 77;
constexpr long kPidfdGetfd = 438, kOpenTree = 428, kMountSetattr = 442;

#define REQUIRE(what)                                                                            \
  do {                                                                                           \
    if (!(what)) {                                                                               \
      std::fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, std::strerror(errno)); \
      return 1;                                                                                  \
    }                                                                                            \
  } while (false)

// Runs `body` in a child of an unprivileged user, with a directory of its own; its exit status.
template <typename Body>
int AsUser(Body body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(kSkipped);
    ::prctl(PR_SET_DUMPABLE, 1);  // as after an exec
    if (::access(TIERD_BINARY, X_OK) != 0) ::_exit(kSkipped);
    int outcome = 1;
    {
      const ScratchDir scratch;
      outcome = body(scratch.path());
    }
    std::fflush(nullptr);
    ::_exit(outcome);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define EXPECT_HELD(outcome)                                                          \
  do {                                                                                \
    const int held_outcome = (outcome);                                               \
    if (held_outcome == kSkipped) GTEST_SKIP() << "may not become another user here"; \
    EXPECT_EQ(held_outcome, 0);                                                       \
  } while (false)

std::string SelfFd(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// The number of a door that was open; 0: none was.
int DoorOf(int fd, std::size_t bytes) {
  (void)::fchmod(fd, 0600);
  const int again = ::open(SelfFd(fd).c_str(), O_RDWR | O_CLOEXEC);
  if (again >= 0) {
    if (::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED)
      return 1;
    if (::pwrite(again, "forged", 6, 0) >= 0) return 2;
    if (::fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 << 20) == 0) return 3;
    if (::ftruncate(again, 0) == 0) return 4;
    ::close(again);
  }
  void* const view = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (view == MAP_FAILED) return 5;
  if (::mprotect(view, bytes, PROT_READ | PROT_WRITE) == 0) return 6;
  if (::madvise(view, bytes, MADV_REMOVE) == 0) return 7;
  const int memory = ::open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  if (memory >= 0 && ::pwrite(memory, "forged", 6, reinterpret_cast<off_t>(view)) >= 0) return 8;
  ::close(memory);
  ::munmap(view, bytes);
  return 0;
}

// With all capabilities of a user namespace, and in a mount namespace of its own.
int MountDoorOf(int fd, std::size_t bytes) {
  if (::syscall(kOpenTree, fd, "", AT_EMPTY_PATH | 1) >= 0) return 9;
  struct {
    std::uint64_t set = 0, clear = 1, propagation = 0, user_namespace = 0;
  } attributes;
  if (::syscall(kMountSetattr, fd, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0)
    return 10;
  if (::mount(nullptr, SelfFd(fd).c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr) == 0) return 11;
  return DoorOf(fd, bytes);
}

struct Kept {
  int fd;
  std::size_t bytes;
};

// What the client has received, but for its session page, which it may write.
std::vector<Kept> ReadOnlyDescriptors() {
  std::vector<Kept> kept;
  for (int i = 0; i < std::min(received_count.load(), kMostReceived); ++i) {
    struct stat info{};
    if (::fstat(received[i], &info) != 0) continue;
    if ((::fcntl(received[i], F_GETFL) & O_ACCMODE) == O_RDONLY)
      kept.push_back({received[i], static_cast<std::size_t>(info.st_size)});
  }
  return kept;
}

std::string Content(int file) {
  return std::string(100'000 + static_cast<std::size_t>(file), static_cast<char>('a' + file % 26));
}

int WriteFiles(const std::string& directory, int count) {
  for (int i = 0; i < count; ++i) Write(directory + "/" + std::to_string(i), Content(i));
  return 0;
}

// A client that holds the descriptors of the index and of segments tries every door; then all bytes
// are what the source has.
int AttackDescriptors(const std::string& scratch, const std::vector<std::string>& more) {
  WriteFiles(scratch + "/data", 60);
  DaemonProcess daemon(scratch);
  DaemonProcess::Options options;
  options.source = scratch + "/data";
  options.ram = "64 MiB";
  options.ssd = "off";
  options.more = more;
  REQUIRE(daemon.Start(options));
  const Client client(daemon.socket());
  REQUIRE(client.error() == 0);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 60; ++i)
      REQUIRE(Get(client.get(), options.source + "/" + std::to_string(i)).bytes == Content(i));
  }
  const std::vector<Kept> kept = ReadOnlyDescriptors();
  REQUIRE(kept.size() >= 2);
  const std::string output = daemon.output();
  std::fprintf(stderr, "%zu descriptors,%s\n", kept.size(),
               output.substr(output.find(" pages="), 20).c_str());
  for (const Kept& one : kept) {
    const int door = DoorOf(one.fd, one.bytes);
    if (door != 0) std::fprintf(stderr, "door %d is open\n", door);
    REQUIRE(door == 0);
  }
  for (int i = 0; i < 60; ++i)
    REQUIRE(Get(client.get(), options.source + "/" + std::to_string(i)).bytes == Content(i));
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(0);
    for (const Kept& one : kept)
      if (const int door = MountDoorOf(one.fd, one.bytes); door != 0) ::_exit(door);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (status != 0) std::fprintf(stderr, "door %d is open\n", WEXITSTATUS(status));
  REQUIRE(status == 0);
  REQUIRE(daemon.Stop() == 0);
  return 0;
}

TEST(Frames, NoClientCanWriteIntoPagesThatAreChosenByItself) {
  EXPECT_HELD(AsUser([](const std::string& scratch) { return AttackDescriptors(scratch, {}); }));
}

TEST(Frames, NoClientCanWriteIntoSmallPages) {
  EXPECT_HELD(AsUser([](const std::string& scratch) {
    return AttackDescriptors(scratch, {"--set", "ram.pages=4k"});
  }));
}

TEST(Frames, NoClientCanWriteIntoSealedMemory) {
  EXPECT_HELD(AsUser([](const std::string& scratch) {
    return AttackDescriptors(scratch, {"--set", "ram.pages=4k", "--set", "ram.seal=write"});
  }));
}

// Where namespaces are refused there is no private tmpfs.
TEST(Frames, NoClientCanWriteWhereNamespacesAreRefused) {
  EXPECT_HELD(AsUser([](const std::string& scratch) {
    ::setenv("TIERD_PRIVATE_TMPFS", "/proc:/proc", 1);  // no tmpfs: as good as refused
    return AttackDescriptors(scratch, {});
  }));
}

bool IsSegment(int fd, bool* writable) {
  char name[256] = {};
  if (::readlink(SelfFd(fd).c_str(), name, sizeof name - 1) <= 0) return false;
  *writable = (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
  return std::strstr(name, "tierd-segment") != nullptr ||
         std::strstr(name, "tierd-index") != nullptr || std::strstr(name, "tierd-") != nullptr;
}

// Every way into the running daemon that needs no privilege.
int AttackDaemon(const std::string& scratch) {
  WriteFiles(scratch + "/data", 3);
  DaemonProcess daemon(scratch);
  DaemonProcess::Options options;
  options.source = scratch + "/data";
  options.ssd = "off";
  REQUIRE(daemon.Start(options));
  const std::string proc = "/proc/" + std::to_string(daemon.pid());
  for (const char* file : {"/fd", "/map_files", "/root/", "/cwd/"})
    REQUIRE(::open((proc + file).c_str(), O_RDONLY) < 0);
  for (const char* file : {"/mem", "/ns/mnt", "/ns/user", "/environ", "/maps", "/uid_map"}) {
    const bool reads_only = std::strcmp(file, "/mem") != 0 && std::strcmp(file, "/uid_map") != 0;
    REQUIRE(::open((proc + file).c_str(), reads_only ? O_RDONLY : O_RDWR) < 0);
  }
  for (int fd = 0; fd < 64; ++fd)
    REQUIRE(::open((proc + "/fd/" + std::to_string(fd)).c_str(), O_RDWR) < 0);
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, daemon.pid(), 0));
  for (int fd = 0; pidfd >= 0 && fd < 256; ++fd) REQUIRE(::syscall(kPidfdGetfd, pidfd, fd, 0) < 0);
  if (pidfd >= 0) REQUIRE(::setns(pidfd, CLONE_NEWNS | CLONE_NEWUSER) != 0);
  REQUIRE(::ptrace(PTRACE_SEIZE, daemon.pid(), nullptr, nullptr) != 0);
  REQUIRE(::ptrace(PTRACE_ATTACH, daemon.pid(), nullptr, nullptr) != 0);
  char byte = 'x';
  iovec here{&byte, 1};
  iovec there{reinterpret_cast<void*>(0x10000), 1};
  REQUIRE(::process_vm_writev(daemon.pid(), &here, 1, &there, 1, 0) < 0 && errno == EPERM);
  REQUIRE(daemon.Stop() == 0);
  return 0;
}

TEST(Frames, NoProcessOfTheUserCanEnterTheDaemon) { EXPECT_HELD(AsUser(AttackDaemon)); }

// Looks for descriptors of shared memory in each child of the daemon, for as long as it is told.
// True: one of them was writable.
bool StealFromChildren(pid_t daemon, const std::atomic<bool>& stop, std::uint64_t* looks) {
  bool won = false;
  const std::string tasks = "/proc/" + std::to_string(daemon) + "/task";
  while (!stop.load(std::memory_order_relaxed)) {
    DIR* const directory = ::opendir(tasks.c_str());
    if (directory == nullptr) continue;
    while (const dirent* entry = ::readdir(directory)) {
      if (entry->d_name[0] == '.') continue;
      const int list =
          ::open((tasks + "/" + entry->d_name + "/children").c_str(), O_RDONLY | O_CLOEXEC);
      char text[256] = {};
      const ssize_t bytes = list >= 0 ? ::read(list, text, sizeof text - 1) : 0;
      if (list >= 0) ::close(list);
      if (bytes <= 0) continue;
      const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, std::atoi(text), 0));
      for (int round = 0; pidfd >= 0 && round < 50; ++round) {
        for (int fd = 3; fd < 64; ++fd) {
          const int got = static_cast<int>(::syscall(kPidfdGetfd, pidfd, fd, 0));
          ++*looks;
          if (got < 0) continue;
          bool writable = false;
          if (IsSegment(got, &writable) && writable) won = true;
          ::close(got);
        }
      }
      if (pidfd >= 0) ::close(pidfd);
    }
    ::closedir(directory);
  }
  return won;
}

// While the daemon starts and makes one segment after the other.
int AttackChildren(const std::string& scratch) {
  constexpr int kFiles = 500;
  WriteFiles(scratch + "/data", kFiles);
  DaemonProcess daemon(scratch);
  DaemonProcess::Options options;
  options.source = scratch + "/data";
  options.ssd = "off";
  options.ram = "64 MiB";
  options.more = {"--set", "ram.segment_size=8 MiB", "--set", "source.chunk_size=1 MiB",
                  "--set", "ram.min_available=1 MiB"};
  daemon.Launch(options);
  std::atomic<bool> stop{false};
  std::atomic<bool> won{false};
  std::uint64_t looks = 0;
  std::thread thief([&] { won = StealFromChildren(daemon.pid(), stop, &looks); });
  const bool ready = daemon.AwaitReady();
  if (ready) {
    const Client client(daemon.socket());
    for (int i = 0; i < kFiles; ++i) Get(client.get(), options.source + "/" + std::to_string(i));
  }
  stop = true;
  thief.join();
  std::fprintf(stderr, "looked %llu times\n", static_cast<unsigned long long>(looks));
  if (!ready) std::fprintf(stderr, "%s\n", daemon.output().c_str());
  REQUIRE(ready);
  REQUIRE(!won);
  REQUIRE(daemon.Stop() == 0);
  return 0;
}

TEST(Frames, NoChildOfTheDaemonGivesAwayAWritableDescriptor) {
  for (int round = 0; round < 3; ++round) EXPECT_HELD(AsUser(AttackChildren));
}

}  // namespace
}  // namespace tierd::e2e
