// A source file under another process's write lease (F_SETLEASE): open(2) waits until the holder has let go, and so do we.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>

#include "tests/client/client_rig.h"

namespace {

bool refuses = false;  // what does not lie ready, as long as O_NONBLOCK is set

}  // namespace

extern "C" ssize_t pread(int fd, void* buffer, std::size_t count, off_t offset) {
  if (refuses && (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::syscall(SYS_pread64, fd, buffer, count, offset);
}

namespace tierd::testing {
namespace {

int leased = -1;

void LetGo(int) { ::fcntl(leased, F_SETLEASE, F_UNLCK); }

class LeasedFileTest : public ClientRig {
 protected:
  void SetUp() override {
    ClientRig::SetUp();
    Write("f", kContent);
  }
  void TearDown() override {
    refuses = false;
    ClientRig::TearDown();
  }
  // What `read` gives while a child holds the lease, until it is asked to let go.
  template <typename Read>
  void UnderLease(Read read) {
    int ready[2];
    ASSERT_EQ(0, ::pipe2(ready, O_CLOEXEC));
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGIO, &LetGo);
      leased = ::open(Path("f").c_str(), O_RDWR);
      const char said = ::fcntl(leased, F_SETLEASE, F_WRLCK) == 0 ? 'y' : 'n';
      (void)!::write(ready[1], &said, 1);
      for (;;) ::pause();
    }
    char said = 0;
    EXPECT_EQ(1, ::read(ready[0], &said, 1));
    if (said == 'y') read();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
    if (said != 'y') GTEST_SKIP() << "no leases on this file system";
  }
  void ReadEachWay() {
    UnderLease([this] { EXPECT_EQ(kContent, Get(Path("f"))); });
    UnderLease([this] {
      std::string buffer(kContent.size(), '\0');
      EXPECT_EQ(static_cast<ssize_t>(buffer.size()), tier_read_file(client_, Path("f").c_str(), buffer.data(), buffer.size(), nullptr, 0));
      EXPECT_EQ(kContent, buffer);
    });
    UnderLease([this] {
      tier_file* file = nullptr;
      ASSERT_EQ(0, tier_open(client_, Path("f").c_str(), &file, 0));
      std::string buffer(kContent.size(), '\0');
      EXPECT_EQ(static_cast<ssize_t>(buffer.size()), tier_file_pread(file, buffer.data(), buffer.size(), 0));
      EXPECT_EQ(kContent, buffer);
      tier_close(file);
    });
  }
  const std::string kContent = ContentOf("f", 100'000);
};

TEST_F(LeasedFileTest, IsWaitedFor) {
  Client();
  ReadEachWay();
}

TEST_F(LeasedFileTest, IsWaitedForBesideADaemon) {
  StartDaemon();
  Client();
  ReadEachWay();
}

TEST_F(LeasedFileTest, WhatDoesNotLieReadyIsWaitedFor) {
  Client();
  refuses = true;
  EXPECT_EQ(kContent, Get(Path("f")));
}

}  // namespace
}  // namespace tierd::testing
