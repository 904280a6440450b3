#include "client_lib/src/settings.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/src/file_limit.h"

namespace tierd::client {
namespace {

// Nothing of the environment counts in a program that runs with more rights than its caller (FAULTS T13).
const char* Environment(const char* name) { return ::getauxval(AT_SECURE) != 0 ? nullptr : ::getenv(name); }

bool IsOn(const char* value) { return value != nullptr && value[0] != '\0' && std::strcmp(value, "0") != 0; }

// As the daemon sees it. One that is not there was another machine's, or another user's: batch systems and su pass it on.
bool IsRuntimeDirectory(const char* path) {
  struct stat st;
  return path != nullptr && path[0] == '/' && ::fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && st.st_uid == ::geteuid();
}

void ReadPrefixes(Settings& settings) {
  const char* value = Environment("TIERD_PREFIX");
  if (value == nullptr || std::strlen(value) >= sizeof settings.prefix_text) return;
  std::strcpy(settings.prefix_text, value);
  char* rest = nullptr;
  for (char* part = ::strtok_r(settings.prefix_text, ":", &rest); part != nullptr; part = ::strtok_r(nullptr, ":", &rest)) {
    if (settings.prefixes.count == Prefixes::kMax || part[0] != '/') continue;
    std::size_t bytes = std::strlen(part);
    while (bytes > 0 && part[bytes - 1] == '/') --bytes;
    settings.prefixes.text[settings.prefixes.count] = part;
    settings.prefixes.bytes[settings.prefixes.count++] = static_cast<std::uint32_t>(bytes);
  }
}

}  // namespace

bool ReadSettings(const tier_options* options, Settings& settings) {
  const char* socket = Environment("TIERD_SOCKET");
  if (options != nullptr) {
    if (options->size < sizeof(tier_options) || options->timeout_ms > kDefaultTimeoutMs) return false;
    if ((options->flags & ~(TIER_REQUIRE_DAEMON | TIER_CHECK_OPEN | TIER_POPULATE)) != 0) return false;
    if (options->socket != nullptr) socket = options->socket;
    if (options->timeout_ms != 0) settings.timeout_ms = options->timeout_ms;
    settings.flags = options->flags;
  }
  int length;
  if (socket != nullptr && socket[0] != '\0') {
    length = ::snprintf(settings.socket, sizeof settings.socket, "%s", socket);
  } else if (const char* runtime = Environment("XDG_RUNTIME_DIR"); IsRuntimeDirectory(runtime)) {
    length = ::snprintf(settings.socket, sizeof settings.socket, "%s/tierd/tierd.sock", runtime);
  } else {
    length = ::snprintf(settings.socket, sizeof settings.socket, "/tmp/tierd-%u/tierd.sock", ::geteuid());
  }
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof settings.socket) settings.socket[0] = '\0';
  settings.disabled = IsOn(Environment("TIERD_DISABLE")) || ::getauxval(AT_SECURE) != 0;
  settings.log = IsOn(Environment("TIERD_LOG"));
  ReadPrefixes(settings);
  return true;
}

void Log(const Settings& settings, const char* format, ...) {
  if (!settings.log) return;
  char line[512];
  int used = ::snprintf(line, sizeof line, "libtier[%d]: ", static_cast<int>(::getpid()));
  va_list arguments;
  va_start(arguments, format);
  const int more = ::vsnprintf(line + used, sizeof line - static_cast<std::size_t>(used) - 1, format, arguments);
  va_end(arguments);
  if (more < 0) return;
  used += more;
  if (static_cast<std::size_t>(used) > sizeof line - 2) used = sizeof line - 2;
  line[used] = '\n';
  (void)WriteWithinLimit(STDERR_FILENO, line, static_cast<std::size_t>(used) + 1);
}

}  // namespace tierd::client
