#include "tierd/base/real_path.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

#include "tierd/base/unique_fd.h"

namespace tierd {

Result<std::string> RealPath(const std::string& path) {
  char name[PATH_MAX];
  if (::realpath(path.c_str(), name) != nullptr) return std::string(name);
  const int refused = errno;
  // An answer of its own is believed; what no file system says is a filter's.
  if (refused != EPERM && refused != ENOSYS) return Status::FromErrno(refused, path);
  const UniqueFd place(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!place.valid()) return Status::FromErrno(errno, path);
  const std::string link = "/proc/self/fd/" + std::to_string(place.get());
  const ssize_t length = ::readlink(link.c_str(), name, sizeof name);
  const bool whole = length > 0 && static_cast<std::size_t>(length) < sizeof name && name[0] == '/';
  if (!whole) return Status::FromErrno(refused, path);
  return std::string(name, static_cast<std::size_t>(length));
}

}  // namespace tierd
