#include "client_lib/src/spellings.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/src/path_text.h"

namespace tierd::client {
namespace {

// Length of the kernel's name of an open file; 0: it has none that could be a path of ours.
std::size_t NameOf(int fd, PathText& name) {
  char link[32] = "/proc/self/fd/";
  std::size_t used = std::strlen(link);
  char digits[12];
  int n = 0;
  for (int rest = fd; n == 0 || rest > 0; rest /= 10) digits[n++] = static_cast<char>('0' + rest % 10);
  while (n > 0) link[used++] = digits[--n];
  link[used] = '\0';
  const long got = ::syscall(SYS_readlinkat, AT_FDCWD, link, name.text, sizeof name.text - 1);
  if (got < 1 || name.text[0] != '/') return 0;
  name.text[got] = '\0';
  return static_cast<std::size_t>(got);
}

std::size_t NameBehind(const char* path, int flags, PathText& name) {
  const int fd = ::open(path, O_PATH | O_CLOEXEC | flags);
  if (fd < 0) return 0;
  const std::size_t bytes = NameOf(fd, name);
  ::close(fd);
  return bytes;
}

// The directory by the kernel's name, the last component as it stands.
std::size_t NameOfEntry(const char* path, PathText& name) {
  const std::size_t bytes = std::strlen(path);
  if (bytes == 0 || bytes >= sizeof name.text) return 0;
  const char* const slash = std::strrchr(path, '/');
  const std::size_t begin = slash == nullptr ? 0 : static_cast<std::size_t>(slash + 1 - path);
  const std::size_t last = bytes - begin;
  if (last == 0 || (last <= 2 && std::memcmp(path + begin, "..", last) == 0)) return 0;  // a directory: it is what the path leads to
  PathText directory;
  std::memcpy(directory.text, path, begin);
  std::memcpy(directory.text + begin, ".", 2);
  std::size_t used = NameBehind(directory.text, O_DIRECTORY, name);
  if (used == 0) return 0;
  if (used == 1) used = 0;  // the root: the '/' comes with the last component
  if (used + 1 + last >= sizeof name.text) return 0;
  name.text[used++] = '/';
  std::memcpy(name.text + used, path + begin, last + 1);
  return used + last;
}

// Keeps what was put behind the last one, unless it is there already.
void Keep(std::size_t bytes, Spellings& found) {
  const char* const text = found.text[found.count].text;
  if (bytes == 0 || !IsCanonical(text, bytes)) return;
  for (std::size_t i = 0; i < found.count; ++i) {
    if (found.bytes[i] == bytes && std::memcmp(found.text[i].text, text, bytes) == 0) return;
  }
  found.bytes[found.count++] = bytes;
}

}  // namespace

std::size_t KernelNameOf(const char* directory, PathText& name) { return NameBehind(directory, O_DIRECTORY, name); }

void FindSpellings(const char* path, bool ask_kernel, Spellings& found) {
  found.count = 0;
  std::size_t bytes = std::strlen(path);
  if (bytes < sizeof found.text[0].text && IsCanonical(path, bytes)) std::memcpy(found.text[0].text, path, bytes + 1);
  else if (!MakeCanonical(path, found.text[0], &bytes)) bytes = 0;
  Keep(bytes, found);
  if (!ask_kernel) return;
  const std::size_t as_it_stands = found.count;
  const std::size_t behind = NameBehind(path, 0, found.text[found.count]);
  Keep(behind, found);
  if (behind == 0 || as_it_stands == 0 || found.count > as_it_stands) Keep(NameOfEntry(path, found.text[found.count]), found);
}

}  // namespace tierd::client
