#include "client_lib/preload/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>

#include "client_lib/preload/counters.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/root_names.h"
#include "client_lib/preload/writers.h"
#include "client_lib/src/advice.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/process.h"

namespace tierd::preload {

// ---- telling ---------------------------------------------------------------------------------------------------------------

namespace {

// Changes that nobody could be told of. When there are more, or it is not known which, all is lost: nothing is served any more.
enum class Slot : std::uint8_t { kFree, kBeingMade, kPath, kRecursive };
constexpr int kUntold = 8;
struct Untold {
  std::atomic<Slot> slot;
  client::PathText name;
};
Untold untold[kUntold];
constinit std::atomic<std::uint32_t> untold_count{0};
constinit std::atomic<bool> lost{false};

bool Tell(const char* path, bool recursive) {
  if (StackIsSmall()) return false;
  const raw::NoSignals no_signals;  // who jumps out of a handler must not leave the core's locks behind
  const std::int64_t result = client::InvalidateName(client::ClientOf(nullptr), path, recursive);
  return result != -EDEADLK && result != -ENOMEM;  // else heard, or the core reads the source until it is
}

void Keep(const char* path, bool recursive) {
  untold_count.fetch_add(1, std::memory_order_acq_rel);
  for (Untold& one : untold) {
    Slot free = Slot::kFree;
    if (!one.slot.compare_exchange_strong(free, Slot::kBeingMade, std::memory_order_acq_rel)) continue;
    std::strcpy(one.name.text, path);
    one.slot.store(recursive ? Slot::kRecursive : Slot::kPath, std::memory_order_release);
    return;
  }
  lost.store(true, std::memory_order_release);
}

}  // namespace

void TellChange(const char* path, bool recursive) {
  Count(counters.invalidations);
  if (!Tell(path, recursive)) Keep(path, recursive);
}

void TellEverything() {
  untold_count.fetch_add(1, std::memory_order_acq_rel);
  lost.store(true, std::memory_order_release);
}

bool AnyUntold() { return untold_count.load(std::memory_order_acquire) != 0; }

bool TellUntold() {
  if (lost.load(std::memory_order_acquire)) return false;
  for (Untold& one : untold) {
    Slot slot = one.slot.load(std::memory_order_acquire);
    if (slot != Slot::kPath && slot != Slot::kRecursive) continue;
    if (!one.slot.compare_exchange_strong(slot, Slot::kBeingMade, std::memory_order_acq_rel)) continue;
    const bool told = Tell(one.name.text, slot == Slot::kRecursive);
    one.slot.store(told ? Slot::kFree : slot, std::memory_order_release);
    if (!told) return false;
    untold_count.fetch_sub(1, std::memory_order_acq_rel);
  }
  return !AnyUntold();
}

// ---- which names -----------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kDevices = client::Prefixes::kMax;
constexpr std::int64_t kLookEveryNs = 1'000'000'000;
constinit std::atomic<std::uint64_t> devices[kDevices] = {};  // of the sources' roots, + 1
constinit std::atomic<std::int64_t> looked_ns{0};
constinit std::atomic<bool> any_device{true};  // more roots than that, or one that cannot be looked at

bool StatOf(int directory, const char* path, struct stat& st) {
  return raw::Call(SYS_newfstatat, directory, raw::Address(path), raw::Address(&st), 0) == 0;
}

// A root that is a link leads to the device of what it names.
void LookAtRoots() {
  bool any = false;
  std::size_t used = 0;
  const auto look = [&](const char* root) {
    struct stat st;
    if (used == kDevices || !StatOf(AT_FDCWD, root[0] != '\0' ? root : "/", st)) any = true;
    else devices[used++].store(st.st_dev + 1, std::memory_order_relaxed);
  };
  for (std::size_t i = 0; i < process.roots.count; ++i) look(process.roots.text[i]);
  const client::Session* const session = process.roots.count == 0 ? process.client->session() : nullptr;
  if (session != nullptr) {
    const client::SourceTable& sources = *session->sources.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < sources.count(); ++i) look(sources.at(i).root);
  } else if (process.roots.count == 0) {
    any = true;
  }
  for (; used < kDevices; ++used) devices[used].store(0, std::memory_order_relaxed);
  any_device.store(any, std::memory_order_relaxed);
}

// Whether directories on that device may be a source's. (Of other files an overlay shows the devices that lie below it.)
bool MayBeOnSource(std::uint64_t device) {
  const std::int64_t now_ns = client::CoarseNs();
  std::int64_t looked = looked_ns.load(std::memory_order_acquire);
  if (looked == 0 || now_ns - looked > kLookEveryNs) {
    LookAtRoots();
    looked_ns.store(now_ns, std::memory_order_release);
  }
  if (any_device.load(std::memory_order_relaxed)) return true;
  for (const auto& known : devices) {
    if (known.load(std::memory_order_relaxed) == device + 1) return true;
  }
  return false;
}

}  // namespace

ChangedName::What ChangedName::NameOfTarget(int directory, const char* path) {
  struct stat st;
  if (!StatOf(directory, path, st)) return What::kOutside;  // there is nothing to change
  if (S_ISDIR(st.st_mode) && !MayBeOnSource(st.st_dev)) return What::kOutside;
  client::PathText* const name = name_.Get();
  const int fd = name == nullptr ? -EMFILE : WithReserve([&] { return raw::Open(directory, path, O_PATH | O_CLOEXEC); });
  if (fd < 0) return fd == -ENOENT ? What::kOutside : What::kUnknown;
  const bool named = NameOfDescriptor(fd, *name);
  raw::Close(fd);
  return named ? What::kNamed : What::kOutside;
}

// The directory by the kernel's name, the last component as it stands.
ChangedName::What ChangedName::NameOfEntry(int directory, const char* path) {
  std::size_t end = std::strlen(path);
  if (end == 0 || end >= PATH_MAX) return What::kOutside;  // no call takes it
  while (end > 1 && path[end - 1] == '/') --end;
  std::size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/') --begin;
  const std::size_t bytes = end - begin;
  const bool dots = (bytes == 1 && path[begin] == '.') || (bytes == 2 && path[begin] == '.' && path[begin + 1] == '.');
  if (bytes == 0 || dots) return NameOfTarget(directory, path);
  Room parent;
  const char* in = ".";
  if (begin != 0) {
    client::PathText* const text = parent.Get();
    if (text == nullptr) return What::kUnknown;
    std::memcpy(text->text, path, begin);
    text->text[begin] = '\0';
    in = text->text;
  }
  const What where = NameOfTarget(directory, in);
  if (where != What::kNamed) return where;
  client::PathText* const name = name_.Get();
  std::size_t used = std::strlen(name->text);
  if (used == 1) used = 0;
  if (used + 1 + bytes >= sizeof name->text) return What::kOutside;
  name->text[used] = '/';
  std::memcpy(name->text + used + 1, path + begin, bytes);
  name->text[used + 1 + bytes] = '\0';
  return What::kNamed;
}

ChangedName::ChangedName(int directory, const char* path, Changes what) : is_entry_(what == Changes::kEntry) {
  if (!Active() || path == nullptr) return;
  what_ = what == Changes::kEntry ? NameOfEntry(directory, path) : NameOfTarget(directory, path);
  if (what_ == What::kNamed && !NameInSource(*name_.Get())) what_ = What::kOutside;
}

ChangedName::ChangedName(int fd) {
  if (!Active() || fd < 0) return;
  client::PathText* const name = name_.Get();
  if (name == nullptr) what_ = What::kUnknown;
  else if (NameOfDescriptor(fd, *name) && NameInSource(*name)) what_ = What::kNamed;
}

// Any name may be one that a link leads through.
ChangedName::~ChangedName() {
  if (is_entry_) DoubtLinks();
}

void ChangedName::Tell(bool recursive) const {
  if (what_ == What::kOutside) return;
  const client::KeepErrno keep;
  if (what_ == What::kNamed) TellChange(name_.Get()->text, recursive);
  else TellEverything();
}

// ---- the file itself -------------------------------------------------------------------------------------------------------

ChangedFile::ChangedFile(const ChangedName& name, int directory, const char* path, Changes what) {
  struct stat st;
  const int flags = what == Changes::kEntry ? AT_SYMLINK_NOFOLLOW : 0;
  if (name.inside() && raw::Call(SYS_newfstatat, directory, raw::Address(path), raw::Address(&st), flags) == 0) Note(st);
}

ChangedFile::ChangedFile(const ChangedName& name, int fd) {
  struct stat st;
  if (name.inside() && raw::Stat(fd, st) == 0) Note(st);
}

void ChangedFile::Note(const struct stat& st) {
  was_link_ = S_ISLNK(st.st_mode);
  if (!S_ISREG(st.st_mode)) return;
  inode_ = st.st_ino;
  other_names_ = st.st_nlink > 1;
  MaterialiseFile(inode_);
}

void ChangedFile::Tell() const {
  if (other_names_) NoteOtherNames(inode_);
  if (inode_ != 0) MaterialiseFile(inode_);  // what another thread has opened meanwhile, if its name leads there still
}

}  // namespace tierd::preload
