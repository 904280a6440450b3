#include "tierd/base/read_capability.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace tierd {
namespace {

// The kernel's own answer: a file whose mode lets nobody read it.
bool CanReadAll() {
  char name[] = "/tmp/tierd-mode-XXXXXX";
  const int made = ::mkstemp(name);
  ::fchmod(made, 0);
  const int fd = ::open(name, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
  ::close(made);
  ::unlink(name);
  return fd >= 0;
}

void DropAll() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  ASSERT_EQ(::syscall(SYS_capset, &header, none), 0);
}

TEST(ReadCapability, IsWhatTheKernelGoesBy) { EXPECT_EQ(ReadsDespiteModes(0), CanReadAll()); }

TEST(ReadCapability, IsSeenOfAnotherProcess) {
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    DropAll();
    char byte = CanReadAll() ? 'y' : 'n';
    (void)!::write(go[1], &byte, 1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(go[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'n');
  EXPECT_FALSE(ReadsDespiteModes(child));
  EXPECT_EQ(ReadsDespiteModes(::getpid()), ReadsDespiteModes(0));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(go[0]);
  ::close(go[1]);
}

TEST(ReadCapability, OfAProcessThatIsNotThereIsNone) { EXPECT_FALSE(ReadsDespiteModes(0x3fffffff)); }

}  // namespace
}  // namespace tierd
