#include "tierctl/run/place.h"

#include <unistd.h>

#include <filesystem>
#include <initializer_list>

namespace tierctl::run {
namespace {

namespace fs = std::filesystem;

std::string FirstOf(const std::optional<std::string>& named, std::initializer_list<const char*> places) {
  std::error_code error;
  if (named) {  // the daemon starts in "/", and the command's processes go where they like
    const fs::path absolute = named->empty() ? fs::path() : fs::absolute(*named, error);
    return error ? *named : absolute.string();
  }
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return "";
  for (const char* place : places) {
    const fs::path candidate = fs::weakly_canonical(here / place, error);
    if (!error && fs::is_regular_file(candidate, error)) return candidate.string();
  }
  return "";
}

}  // namespace

std::string FindDaemon(const tierd::config::GetEnvironment& environment) { return FirstOf(environment("TIERD_BINARY"), {"tierd", "../tierd/tierd"}); }

std::string FindPreload(const tierd::config::GetEnvironment& environment) {
  return FirstOf(environment("TIERD_PRELOAD"), {"../" TIERD_LIBDIR "/libtier_preload.so", "../lib/libtier_preload.so", "../client_lib/preload/libtier_preload.so"});
}

}  // namespace tierctl::run
