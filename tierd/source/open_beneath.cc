#include "tierd/source/open_beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include "tierd/io/mount_of.h"

namespace tierd::source {
namespace {

// The kernel answers EAGAIN when a rename anywhere raced with a ".." below RESOLVE_BENEATH; a few repeats always did.
constexpr int kRaceRetries = 16;

OpenedFile OpenAt2(int root_fd, const std::string& path, int flags, std::uint64_t resolve) {
  struct open_how how {};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = resolve;
  OpenedFile opened;
  const char* name = path.empty() ? "." : path.c_str();
  for (int i = 0; i < kRaceRetries; ++i) {
    const long fd = ::syscall(SYS_openat2, root_fd, name, &how, sizeof how);
    if (fd >= 0) {
      opened.fd.Reset(static_cast<int>(fd));
      opened.error = 0;
      return opened;
    }
    opened.error = errno;
    if (opened.error != EAGAIN && opened.error != EINTR) return opened;
  }
  return opened;
}

OpenedFile Failed(int error) {
  OpenedFile opened;
  opened.error = error;
  return opened;
}

// One component below `parent`, never through a link.
OpenedFile OpenComponent(int parent, const std::string& name, int flags, dev_t root_dev) {
  OpenedFile opened;
  opened.fd.Reset(::openat(parent, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
  if (!opened.fd.valid()) return Failed(errno);
  struct stat st {};
  if (::fstat(opened.fd.get(), &st) != 0) return Failed(errno);
  if (S_ISLNK(st.st_mode)) return Failed(ELOOP);
  if (st.st_dev != root_dev) return Failed(EXDEV);
  return opened;
}

OpenedFile WalkBeneath(int root_fd, std::string_view path, int flags) {
  struct stat root {};
  if (::fstat(root_fd, &root) != 0) return Failed(errno);
  UniqueFd parent(::openat(root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent.valid()) return Failed(errno);
  if (path.empty()) path = ".";
  while (true) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string name(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (name == "..") return Failed(EXDEV);
    const bool last = path.empty();
    if (name.empty() && !last) continue;
    const int how = last ? flags : O_PATH | O_DIRECTORY;
    OpenedFile opened = OpenComponent(parent.get(), name.empty() ? "." : name, how, root.st_dev);
    if (opened.error == 0 && last && io::MountOf(opened.fd.get()) != io::MountOf(root_fd)) return Failed(EXDEV);
    if (last || opened.error != 0) return opened;
    parent = std::move(opened.fd);
  }
}

}  // namespace

OpenedFile OpenBeneath(int root_fd, const std::string& path, int flags) {
  OpenedFile opened = OpenAt2(root_fd, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
  // Container runtimes refuse unknown calls with ENOSYS, older ones with EPERM, which can also be meant for the file.
  // Walking then gives the same answer again.
  if (opened.error == ENOSYS || opened.error == EPERM) return WalkBeneath(root_fd, path, flags);
  return opened;
}

OpenedFile OpenBeneathFollowing(int root_fd, const std::string& path, int flags) {
  return OpenAt2(root_fd, path, flags, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV);
}

}  // namespace tierd::source
