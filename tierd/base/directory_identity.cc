#include "tierd/base/directory_identity.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "tierd/base/unique_fd.h"

namespace tierd {

std::optional<DirectoryIdentity> IdentityOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return DirectoryIdentity{info.st_dev, info.st_ino};
}

Result<std::optional<std::size_t>> RootOf(int directory, std::span<const DirectoryIdentity> roots) {
  UniqueFd at(::openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::optional<DirectoryIdentity> below;
  for (;;) {
    struct stat info {};
    if (!at.valid() || ::fstat(at.get(), &info) != 0) return Status::FromErrno(errno, "the directories above");
    const DirectoryIdentity here{info.st_dev, info.st_ino};
    if (const auto found = std::find(roots.begin(), roots.end(), here); found != roots.end()) return std::optional(static_cast<std::size_t>(found - roots.begin()));
    if (below == here) return std::optional<std::size_t>();  // the root of all is its own parent
    below = here;
    at = UniqueFd(::openat(at.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
}

Result<std::optional<std::size_t>> RootOf(const std::string& path, std::span<const DirectoryIdentity> roots) {
  for (std::filesystem::path there = path;; there = there.parent_path()) {
    const UniqueFd directory(::open(there.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (directory.valid()) return RootOf(directory.get(), roots);
    if (there == there.parent_path() || (errno != ENOENT && errno != ENOTDIR)) return Status::FromErrno(errno, there.string());
  }
}

}  // namespace tierd
