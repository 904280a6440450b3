#include "client_lib/preload/paths.h"

#include <cstring>

#include "client_lib/preload/raw.h"
#include "client_lib/preload/slow_path.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/path_text.h"
#include "client_lib/src/thread_state.h"

namespace tierd::preload {
namespace {

enum Guess : std::uint8_t { kUnknown = 0, kOutside = 1, kInside = 2 };

constinit std::atomic<std::uint8_t> working_directory{kUnknown};
constexpr int kDirectories = 1024;
constinit std::atomic<std::uint64_t> outside[kDirectories / 64] = {};

bool BelowSourcesOf(const client::Session& session, const char* path) {
  const char* relative;
  std::size_t relative_bytes;
  return session.sources.load(std::memory_order_acquire)->Match(path, std::strlen(path), &relative, &relative_bytes) != nullptr;
}

// Whether a name that begins in `directory` may lead below a source: the directory is, or one of the sources, or a link to one, is below it.
bool MayLeadInside(const char* directory) {
  if (BelowRoots(directory)) return true;
  const std::size_t bytes = std::strlen(directory) == 1 ? 0 : std::strlen(directory);
  if (LinkIsBelow(directory, bytes)) return true;
  const auto below = [&](const char* root) { return std::strncmp(root, directory, bytes) == 0 && root[bytes] == '/'; };
  for (std::size_t i = 0; i < process.roots.count; ++i) {
    if (below(process.roots.text[i])) return true;
  }
  const client::Session* const session = process.roots.count == 0 ? process.client->session() : nullptr;
  if (session == nullptr) return false;
  const client::SourceTable& sources = *session->sources.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < sources.count(); ++i) {
    if (below(sources.at(i).root)) return true;
  }
  return false;
}

}  // namespace

bool IsSystem(const char* path) {
  while (path[0] == '/' && path[1] == '/') ++path;
  for (const char* prefix : {"/usr/", "/lib", "/etc/", "/proc/", "/sys/", "/dev/", "/run/", "/bin/", "/sbin/", "/var/lib/"}) {
    if (std::strncmp(path, prefix, std::strlen(prefix)) == 0) return true;
  }
  return false;
}

namespace {

// strncmp without the call, which is an indirect one: to guess where these lead is what a processor forgets at system calls. Eight bytes at a time, and up to seven behind the path's end, but
// never into another page; the root is longer.
__attribute__((no_sanitize("address"))) inline bool BeginsWith(const char* path, const char* root, std::uint32_t bytes) {
  std::uint32_t at = 0;
  for (; at + 8 <= bytes && reinterpret_cast<std::uintptr_t>(path + at) % 4096 <= 4096 - 8; at += 8) {
    std::uint64_t ours, theirs;
    __builtin_memcpy(&ours, root + at, 8);
    __builtin_memcpy(&theirs, path + at, 8);
    if (ours != theirs) return false;
  }
  while (at < bytes && path[at] == root[at]) ++at;
  return at == bytes;
}

}  // namespace

bool BelowPrefixes(const char* path) {
  for (std::size_t i = 0; i < process.roots.count; ++i) {
    const char* const root = process.roots.text[i];
    const std::uint32_t bytes = process.roots.bytes[i];
    if (BeginsWith(path, root, bytes) && (path[bytes] == '/' || path[bytes] == '\0')) return true;
  }
  return false;
}

bool BelowKnownSources(const char* path) {
  client::Client& client = *process.client;
  if (const client::Session* session = client.session(); session != nullptr) return BelowSourcesOf(*session, path);
  const std::int64_t now_ns = client::CoarseNs();
  if (client.WithoutDaemon(now_ns) != abi::Fallback::kNone || IsSystem(path)) return false;
  if (StackIsSmall()) return false;
  const client::KeepErrno keep;  // looking for the daemon makes calls that fail
  const SlowPath slow;
  abi::Fallback why;
  const client::Session* const session = slow.entered() ? client.Acquire(now_ns, &why) : nullptr;
  return session != nullptr && BelowSourcesOf(*session, path);
}

namespace {

// Whether what the kernel called a descriptor is its name, and not that of a file that is gone with this appended.
bool IsNameOf(int fd, const char* path) {
  constexpr char kDeleted[] = " (deleted)";
  constexpr std::size_t kBytes = sizeof kDeleted - 1;
  const std::size_t bytes = std::strlen(path);
  if (bytes < kBytes || std::strcmp(path + bytes - kBytes, kDeleted) != 0) [[likely]] return true;
  struct stat named, open;
  return raw::Call(SYS_newfstatat, AT_FDCWD, raw::Address(path), raw::Address(&named), AT_SYMLINK_NOFOLLOW) == 0 && raw::Stat(fd, open) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

}  // namespace

bool NameOfDescriptor(int fd, client::PathText& room) {
  char name[32] = "/proc/self/fd/";
  char digits[12];
  int n = 0;
  for (int rest = fd; n == 0 || rest > 0; rest /= 10) digits[n++] = static_cast<char>('0' + rest % 10);
  std::size_t used = std::strlen(name);
  while (n > 0) name[used++] = digits[--n];
  name[used] = '\0';
  const ssize_t got = raw::ReadLink(name, room.text, sizeof room.text - 1);
  if (got <= 0 || room.text[0] != '/') return false;
  room.text[got] = '\0';
  return IsNameOf(fd, room.text);
}

bool WorkingDirectoryMayBeInside() {
  std::uint8_t guess = working_directory.load(std::memory_order_relaxed);
  if (guess == kUnknown) {
    Room room;
    client::PathText* const name = room.Get();
    if (name == nullptr) return false;
    const long got = raw::Call(SYS_getcwd, raw::Address(name->text), sizeof name->text);
    guess = got > 0 && name->text[0] == '/' && MayLeadInside(name->text) ? kInside : kOutside;
    working_directory.store(guess, std::memory_order_relaxed);
  }
  return guess == kInside;
}

void ForgetWorkingDirectory() { working_directory.store(kUnknown, std::memory_order_relaxed); }

bool DirectoryMayBeInside(int fd) {
  if (fd < 0) return false;
  const std::uint64_t bit = std::uint64_t{1} << (fd % 64);
  if (fd < kDirectories && (outside[fd / 64].load(std::memory_order_relaxed) & bit) != 0) return false;
  Room room;
  client::PathText* const name = room.Get();
  if (name == nullptr) return false;
  if (NameOfDescriptor(fd, *name) && MayLeadInside(name->text)) return true;
  if (fd < kDirectories) {
    outside[fd / 64].fetch_or(bit, std::memory_order_relaxed);
    raw::Note(fd);
  }
  return false;
}

void ForgetDirectory(int fd) {
  if (fd < 0 || fd >= kDirectories) return;
  const std::uint64_t bit = std::uint64_t{1} << (fd % 64);
  if ((outside[fd / 64].load(std::memory_order_relaxed) & bit) != 0) outside[fd / 64].fetch_and(~bit, std::memory_order_relaxed);
}

void ForgetDirectories() {
  for (auto& word : outside) word.store(0, std::memory_order_relaxed);
}

bool AbsoluteName(int directory, const char* path, client::PathText& name) {
  std::size_t bytes = std::strlen(path);
  if (bytes >= PATH_MAX) return false;  // no call takes it
  if (path[0] == '/' || directory == AT_FDCWD) return client::MakeCanonical(path, name, &bytes);
  Room other;
  client::PathText* const joined = other.Get();
  if (joined == nullptr || !NameOfDescriptor(directory, *joined)) return false;
  if (bytes == 1 && path[0] == '.') return client::MakeCanonical(joined->text, name, &bytes);
  const std::size_t used = std::strlen(joined->text);
  if (used + 1 + bytes >= sizeof joined->text) return false;
  joined->text[used] = '/';
  std::memcpy(joined->text + used + 1, path, bytes + 1);
  return client::MakeCanonical(joined->text, name, &bytes);
}

const char* Locate(int directory, const char* path, bool follow, Room& room, bool* outside) {
  const std::size_t bytes = std::strlen(path);
  if (bytes >= PATH_MAX) return nullptr;  // no call takes it
  // MayBeInside has compared it, unless with a link.
  if (path[0] == '/' && client::IsCanonical(path, bytes) && (!AnyLinks() || BelowRoots(path))) return path;
  client::PathText* const found = room.Get();
  if (found == nullptr || !AbsoluteName(directory, path, *found)) return nullptr;
  if (BelowRoots(found->text) || FollowLink(*found, follow)) return found->text;
  if (outside != nullptr) *outside = true;
  return nullptr;
}

}  // namespace tierd::preload
