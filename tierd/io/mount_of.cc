#include "tierd/io/mount_of.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tierd/base/unique_fd.h"

namespace tierd::io {
namespace {

std::uint64_t MountByStatx(int fd) {
  struct statx st {};
  const bool told = ::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_MNT_ID, &st) == 0 && (st.stx_mask & STATX_MNT_ID) != 0;
  return told ? st.stx_mnt_id : 0;
}

}  // namespace

std::uint64_t MountByFdinfo(int fd) {
  char name[40];
  std::snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
  const UniqueFd info(::open(name, O_RDONLY | O_CLOEXEC));
  if (!info.valid()) return 0;
  std::array<char, 512> text{};  // "pos:\t0\nflags:\t012000000\nmnt_id:\t29\n..."
  const ssize_t got = ::read(info.get(), text.data(), text.size() - 1);
  const char* const found = got > 0 ? std::strstr(text.data(), "mnt_id:") : nullptr;
  return found != nullptr ? std::strtoull(found + std::strlen("mnt_id:"), nullptr, 10) : 0;
}

std::uint64_t MountOf(int fd) {
  const std::uint64_t mount = MountByStatx(fd);
  return mount != 0 ? mount : MountByFdinfo(fd);
}

bool StatxTellsMounts() {
  const UniqueFd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  return root.valid() && MountByStatx(root.get()) != 0;
}

}  // namespace tierd::io
