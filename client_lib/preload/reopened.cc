#include "client_lib/preload/reopened.h"

#include <cstring>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/src/process.h"

namespace tierd::preload {

// Whatever comes before: /proc/self/fd, /proc/PID/fdinfo, /proc/thread-self/fd, /dev//fd ... A number too many is only slower.
int NumberNamed(const char* path) {
  while (path[0] == '/' && path[1] == '/') ++path;
  if (std::strncmp(path, "/proc/", 6) != 0 && std::strncmp(path, "/dev/", 5) != 0) return -1;
  const char* const last = std::strrchr(path, '/') + 1;
  int fd = 0;
  for (const char* digit = last; *digit != '\0'; ++digit) {
    if (*digit < '0' || *digit > '9' || fd >= static_cast<int>(raw::kWatched)) return -1;
    fd = fd * 10 + (*digit - '0');
  }
  return *last == '\0' ? -1 : fd;
}

void RealIfReopened(const char* path) {
  const int fd = NumberNamed(path);
  if (fd < 0) return;
  const client::KeepErrno keep;
  if (Emulate(fd)) (void)Materialise(fd, Conversion::kReopened);
  (void)MakeFile(fd);
}

}  // namespace tierd::preload
