#include "client_lib/preload/paths.h"

#include <bit>
#include <cstring>

#include "client_lib/preload/raw.h"
#include "client_lib/preload/slow_path.h"
#include "client_lib/preload/words.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/path_text.h"
#include "client_lib/src/thread_state.h"

namespace tierd::preload {

constinit std::atomic<std::uint64_t> paths_detail::working_directory{0};
constinit std::atomic<std::uint64_t> paths_detail::directories[paths_detail::kDirectories] = {};

namespace {

using paths_detail::directories;
using paths_detail::kDirectories;
using paths_detail::kOutside;
using paths_detail::working_directory;

bool BelowSourcesOf(const client::Session& session, const char* path) {
  const char* relative;
  std::size_t relative_bytes;
  return session.sources.load(std::memory_order_acquire)->Match(path, std::strlen(path), &relative, &relative_bytes) != nullptr;
}

}  // namespace

bool IsSystem(const char* path) {
  while (path[0] == '/' && path[1] == '/') ++path;
  for (const char* prefix : {"/usr/", "/lib", "/etc/", "/proc/", "/sys/", "/dev/", "/run/", "/bin/", "/sbin/", "/var/lib/"}) {
    if (std::strncmp(path, prefix, std::strlen(prefix)) == 0) return true;
  }
  return false;
}

bool BelowPrefixes(const char* path) { return paths_detail::BelowPrefixesHere(path); }

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

// Whether what the kernel called a directory or file is its name, and not that of one that is gone with this appended. `look` asks for what is there.
template <typename Look>
bool IsNameOf(const char* path, Look look) {
  constexpr char kDeleted[] = " (deleted)";
  constexpr std::size_t kBytes = sizeof kDeleted - 1;
  const std::size_t bytes = std::strlen(path);
  if (bytes < kBytes || std::strcmp(path + bytes - kBytes, kDeleted) != 0) [[likely]] return true;
  struct stat named, open;
  return raw::Call(SYS_newfstatat, AT_FDCWD, raw::Address(path), raw::Address(&named), AT_SYMLINK_NOFOLLOW) == 0 && look(open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

template <typename Look>
bool ReadName(const char* link, client::PathText& room, Look look) {
  const ssize_t got = raw::ReadLink(link, room.text, sizeof room.text - 1);
  if (got <= 0 || room.text[0] != '/') return false;
  room.text[got] = '\0';
  return IsNameOf(room.text, look);
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
  return ReadName(name, room, [fd](struct stat& st) { return raw::Stat(fd, st); });
}

// Of this thread: it may have one of its own.
bool NameOfWorkingDirectory(client::PathText& room) {
  return ReadName("/proc/thread-self/cwd", room, [](struct stat& st) { return raw::Call(SYS_newfstatat, AT_FDCWD, raw::Address("."), raw::Address(&st), 0); });
}

// ---- what is remembered of directories ---------------------------------------------------------------------------------------

namespace {

// One word of each. Bits 62-63: nothing; names from there lead outside; it is inside, or a link that leads there is below it; some root is below it. Then bits 0-59: up to
// three hashes of the first components by which a name can lead on to one. Names with one hash are asked about once more; a stale word costs the cache.
enum : std::uint64_t { kUnknown = 0, kInside = std::uint64_t{2} << 62, kAbove = std::uint64_t{3} << 62 };
constexpr int kHashBits = 20, kHashes = 3;
constexpr std::uint64_t kHashMask = (std::uint64_t{1} << kHashBits) - 1;

// Of the component that `name` begins with; 0, for no name has it: there is none, "." or "..". Two names with one hash cost a closer look.
std::uint64_t HashOfFirst(const char* name) {
  const std::uint64_t hash = HashOfFirstComponent(name);
  return hash == 0 ? 0 : hash >> (64 - kHashBits) | 1;
}

// Adds the way to a root that is further down; kInside: more ways than fit.
std::uint64_t WithWay(std::uint64_t word, const char* rest) {
  const std::uint64_t hash = HashOfFirst(rest);
  if (word == kInside || hash == 0) return kInside;
  for (int i = 0; i < kHashes; ++i) {
    const std::uint64_t here = word >> (i * kHashBits) & kHashMask;
    if (here == hash) return word;
    if (here == 0) return word | kAbove | hash << (i * kHashBits);
  }
  return kInside;
}

std::uint64_t WordOf(const char* directory) {
  const std::size_t bytes = std::strlen(directory) == 1 ? 0 : std::strlen(directory);
  if (BelowRoots(directory) || LinkIsBelow(directory, bytes)) return kInside;
  std::uint64_t word = kOutside;
  const auto look = [&](const char* root) {
    if (std::strncmp(root, directory, bytes) == 0 && root[bytes] == '/') word = WithWay(word, root + bytes + 1);
  };
  for (std::size_t i = 0; i < process.roots.count; ++i) look(process.roots.text[i]);
  const client::Session* const session = process.roots.count == 0 ? process.client->session() : nullptr;
  if (session == nullptr) return word;
  const client::SourceTable& sources = *session->sources.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < sources.count(); ++i) look(sources.at(i).root);
  return word;
}

// Whether a name that begins in a directory of which `word` is known may lead inside. Names with ".." may: where those lead, and what is to be counted of them, is Locate's.
bool MayLead(std::uint64_t word, const char* name) {
  if (word < kAbove) return word == kInside;
  const std::uint64_t hash = HashOfFirst(name);
  if (hash == 0) return true;
  unsigned same = 0;
  for (int i = 0; i < kHashes; ++i) same |= (word >> (i * kHashBits) & kHashMask) == hash;
  if (same != 0) return true;
  return GoesUp(name);
}

// Of a number that stands for none, or has no name, kOutside.
std::uint64_t WordOfDescriptor(int fd) {
  if (fd < 0) return kOutside;
  std::uint64_t word = fd < kDirectories ? directories[fd].load(std::memory_order_relaxed) : kUnknown;
  if (word != kUnknown) return word;
  Room room;
  client::PathText* const name = room.Get();
  if (name == nullptr) return kOutside;
  word = NameOfDescriptor(fd, *name) ? WordOf(name->text) : kOutside;
  if (fd < kDirectories) {
    raw::Note(fd);
    directories[fd].store(word, std::memory_order_relaxed);
  }
  return word;
}

}  // namespace

bool paths_detail::MayLeadFromHere(const char* relative) {
  std::uint64_t word = working_directory.load(std::memory_order_relaxed);
  if (word == kUnknown) {
    Room room;
    client::PathText* const name = room.Get();
    if (name == nullptr) return false;
    const long got = raw::Call(SYS_getcwd, raw::Address(name->text), sizeof name->text);
    word = got > 0 && name->text[0] == '/' ? WordOf(name->text) : kOutside;
    working_directory.store(word, std::memory_order_relaxed);
  }
  return MayLead(word, relative);
}

bool paths_detail::MayLeadFrom(int directory, const char* relative) { return MayLead(WordOfDescriptor(directory), relative); }

bool DirectoryMayBeInside(int fd) { return WordOfDescriptor(fd) == kInside; }

void ForgetWorkingDirectory() { working_directory.store(kUnknown, std::memory_order_relaxed); }

void ForgetRemembered(int fd) {
  if (fd >= 0 && fd < kDirectories && directories[fd].load(std::memory_order_relaxed) != kUnknown) directories[fd].store(kUnknown, std::memory_order_relaxed);
}

void ForgetDirectories() {
  for (auto& word : directories) word.store(kUnknown, std::memory_order_relaxed);
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
