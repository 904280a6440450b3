#include "tierd/server/plan_lists.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <memory>
#include <string_view>

namespace tierd::server {
namespace {

constexpr std::time_t kForgottenAfterS = 600;  // a client writes its list, and tells of it at once

}  // namespace

void RemoveForgottenLists(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), &::closedir);
  if (dir == nullptr) return;
  const int at = ::dirfd(dir.get());
  while (const dirent* const entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    struct stat info {};
    if (!name.starts_with("plan-") || !name.ends_with(".list") || ::fstatat(at, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode) && info.st_uid == ::geteuid() && info.st_mtime < std::time(nullptr) - kForgottenAfterS) ::unlinkat(at, entry->d_name, 0);
  }
}

}  // namespace tierd::server
