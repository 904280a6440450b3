#include "tierctl/run/place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <initializer_list>

namespace tierctl::run {
namespace {

namespace fs = std::filesystem;

// The kernel's name of this program has no links in it, so ".." is where it says.
Place FirstOf(const std::string& what, const std::optional<std::string>& named,
              std::initializer_list<const char*> places) {
  std::error_code error;
  if (named) {  // the daemon starts in "/", and the command's processes go where they like
    const fs::path absolute = named->empty() ? fs::path() : fs::absolute(*named, error);
    return {error ? *named : absolute.string(), ""};
  }
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return {"", "cannot look for " + what + ": /proc/self/exe: " + error.message()};
  std::string absent, refused;
  for (const char* place : places) {
    const std::string candidate = (self.parent_path() / place).lexically_normal().string();
    struct stat info {};
    if (::stat(candidate.c_str(), &info) == 0) {
      if (S_ISREG(info.st_mode)) return {candidate, ""};
      refused += (refused.empty() ? "" : "; ") + candidate + " is no regular file";
    } else if (errno == ENOENT || errno == ENOTDIR) {
      absent += (absent.empty() ? "" : ", ") + candidate;
    } else {
      refused += (refused.empty() ? "" : "; ") + candidate + ": " + std::strerror(errno);
    }
  }
  if (!refused.empty()) return {"", "cannot use the " + what + " beside this tierctl: " + refused};
  return {"", "there is no " + what + " beside this tierctl: looked for " + absent};
}

}  // namespace

Place FindDaemon(const tierd::config::GetEnvironment& environment) {
  return FirstOf("tierd", environment("TIERD_BINARY"), {"tierd", "../tierd/tierd"});
}

Place FindPreload(const tierd::config::GetEnvironment& environment) {
  return FirstOf("libtier_preload.so", environment("TIERD_PRELOAD"),
                 {"../" TIERD_LIBDIR "/libtier_preload.so", "../lib/libtier_preload.so",
                  "../client_lib/preload/libtier_preload.so"});
}

}  // namespace tierctl::run
