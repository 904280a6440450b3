#include "tierctl/client/socket_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tierd/base/unique_fd.h"

namespace tierctl {
namespace {

using tierd::Code;

std::string BesideOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + "control.sock";
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// A stream connection to a socket of another type is refused with EPROTOTYPE, before the listener notices anything.
bool IsClientSocket(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return NameOf(path) == "tierd.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const tierd::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return false;
  // The address type is what the socket interface asks for.
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return false;
  return errno == EPROTOTYPE || (errno == ECONNREFUSED && NameOf(path) == "tierd.sock");
}

bool IsDirectory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// As the daemon sees it (config/host.cc): one that is not there, or not the user's, was passed on by a batch system or by su.
bool IsRuntimeDirectory(const std::string& path, std::uint32_t uid) {
  struct stat info {};
  return path.starts_with('/') && ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == uid;
}

std::string ControlOf(const std::string& path) { return IsClientSocket(path) ? BesideOf(path) : path; }

}  // namespace

tierd::Result<std::string> FindControlSocket(const std::string& option, const tierd::config::GetEnvironment& environment, std::uint32_t uid) {
  if (!option.empty() && IsDirectory(option)) return option + (option.ends_with('/') ? "" : "/") + "control.sock";
  if (!option.empty()) return ControlOf(option);
  if (const auto socket = environment("TIERD_SOCKET")) {
    if (IsDirectory(*socket)) return tierd::Status(Code::kInvalid, "$TIERD_SOCKET names a directory, " + *socket + ", for which programs find no daemon: the socket in it is tierd.sock");
    return ControlOf(*socket);
  }
  if (const auto runtime = environment("XDG_RUNTIME_DIR"); runtime && IsRuntimeDirectory(*runtime, uid)) return *runtime + "/tierd/control.sock";
  const std::string directory = "/tmp/tierd-" + std::to_string(uid);
  struct stat info {};
  if (::lstat(directory.c_str(), &info) == 0 && (!S_ISDIR(info.st_mode) || info.st_uid != uid || (info.st_mode & 077) != 0)) {
    return tierd::Status(Code::kPermission, directory + " is not a directory of yours alone (owner uid " + std::to_string(info.st_uid) + "): somebody may have planted it; use --socket");
  }
  return directory + "/control.sock";
}

std::string ClientSocketOf(const std::string& control, const std::string& option, const tierd::config::GetEnvironment& environment) {
  const std::string named = option.empty() ? environment("TIERD_SOCKET").value_or("") : option;
  if (!named.empty() && IsClientSocket(named)) return named;
  return control.substr(0, control.rfind('/') + 1) + "tierd.sock";
}

}  // namespace tierctl
