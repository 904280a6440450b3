#include "client_lib/preload/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>

#include "client_lib/preload/counters.h"
#include "client_lib/preload/directories.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/mounts.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/root_names.h"
#include "client_lib/preload/writers.h"
#include "client_lib/src/advice.h"
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

bool TellDaemonDoubt() {
  if (StackIsSmall()) return false;
  const raw::NoSignals no_signals;
  const std::int64_t result = client::DoubtSources(client::ClientOf(nullptr));
  return result != -EDEADLK;  // else heard, or the core reads the source until it is
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

void TellDoubt() {
  if (!TellDaemonDoubt()) TellEverything();
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

ChangedName::What ChangedName::NameOfTarget(int directory, const char* path) {
  Place place;
  if (!PlaceOfName(directory, path, place)) return What::kOutside;  // there is nothing to change
  elsewhere_ = !MayBeOnSource(place);
  if (elsewhere_) return What::kOutside;
  client::PathText* const name = name_.Get();
  const int fd = name == nullptr ? -EMFILE : WithReserve([&] { return raw::Open(directory, path, O_PATH | O_CLOEXEC); });
  if (fd < 0) return fd == -ENOENT ? What::kOutside : What::kUnknown;
  const bool named = NameOfDescriptor(fd, *name);
  raw::Close(fd);
  RefillReserve();
  return named ? What::kNamed : What::kOutside;
}

ChangedName::LastComponent::LastComponent(const char* path) : end(std::strlen(path)) {
  if (end >= PATH_MAX) end = 0;
  while (end > 1 && path[end - 1] == '/') --end;
  begin = end;
  while (begin > 0 && path[begin - 1] != '/') --begin;
  const std::size_t bytes = end - begin;
  const bool dots = (bytes == 1 && path[begin] == '.') || (bytes == 2 && path[begin] == '.' && path[begin + 1] == '.');
  names_entry = bytes != 0 && !dots;
}

// The directory that an entry is in. Has the name no other component, it is one that is open already.
ChangedName::What ChangedName::NameOfDirectory(int directory, const char* path, const LastComponent& last) {
  if (last.begin == 0) {
    const bool works = directory == AT_FDCWD;
    Place place;
    if (!(works ? PlaceOfName(AT_FDCWD, ".", place) : PlaceOfDescriptor(directory, place))) return What::kOutside;
    elsewhere_ = !MayBeOnSource(place);
    if (elsewhere_) return What::kOutside;
    client::PathText* const name = name_.Get();
    if (name == nullptr) return What::kUnknown;
    return (works ? NameOfWorkingDirectory(*name) : NameOfDescriptor(directory, *name)) ? What::kNamed : What::kOutside;
  }
  Room parent;
  client::PathText* const text = parent.Get();
  if (text == nullptr) return What::kUnknown;
  std::memcpy(text->text, path, last.begin);
  text->text[last.begin] = '\0';
  return NameOfTarget(directory, text->text);
}

// The directory by the kernel's name, the last component as it stands.
ChangedName::What ChangedName::NameOfEntry(int directory, const char* path, const LastComponent& last) {
  if (last.end == 0) return What::kOutside;
  if (!last.names_entry) return NameOfTarget(directory, path);
  const What where = NameOfDirectory(directory, path, last);
  if (where != What::kNamed) return where;
  directory_bytes_ = std::strlen(name_.Get()->text);
  if (directory_bytes_ == 1) directory_bytes_ = 0;
  return Append(path, last);
}

// To the directory's name.
ChangedName::What ChangedName::Append(const char* path, const LastComponent& last) {
  client::PathText* const name = name_.Get();
  const std::size_t used = directory_bytes_, bytes = last.end - last.begin;
  if (used + 1 + bytes >= sizeof name->text) return What::kOutside;
  name->text[used] = '/';
  std::memcpy(name->text + used + 1, path + last.begin, bytes);
  name->text[used + 1 + bytes] = '\0';
  return What::kNamed;
}

// The kernel's name is made the source's.
void ChangedName::Ours() {
  if (what_ != What::kNamed || BelowRoots(name_.Get()->text)) return;
  if (!NameInSource(*name_.Get())) what_ = What::kOutside;
  else directory_bytes_ = 0;  // by another name
}

ChangedName::ChangedName(int directory, const char* path, Changes what) : is_entry_(what == Changes::kEntry) {
  if (!Active() || path == nullptr) return;
  const LastComponent last(path);
  what_ = is_entry_ ? NameOfEntry(directory, path, last) : NameOfTarget(directory, path);
  Ours();
  is_part_of_root_ = is_entry_ && IsPartOfRoot(path + last.begin, last.end - last.begin);
}

ChangedName::ChangedName(const ChangedName& first, NameAt at_first, NameAt entry) : is_entry_(true) {
  if (!Active() || entry.path == nullptr || at_first.path == nullptr) return;
  const LastComponent last(entry.path), last_first(at_first.path);
  is_part_of_root_ = IsPartOfRoot(entry.path + last.begin, last.end - last.begin);
  const bool together = last.names_entry && last_first.names_entry && last.begin == last_first.begin && std::memcmp(entry.path, at_first.path, last.begin) == 0 &&
                        (entry.path[0] == '/' || entry.directory == at_first.directory);
  client::PathText* const name = together && first.directory_bytes_ != 0 ? name_.Get() : nullptr;
  elsewhere_ = together && first.elsewhere_;
  if (elsewhere_) return;
  if (name != nullptr) {
    directory_bytes_ = first.directory_bytes_;
    std::memcpy(name->text, first.name_.Get()->text, directory_bytes_);
    what_ = Append(entry.path, last);
  } else {
    what_ = NameOfEntry(entry.directory, entry.path, last);
  }
  Ours();
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
  if (is_part_of_root_) DoubtRoots();
}

void ChangedName::Tell(bool recursive) const {
  if (what_ == What::kOutside) return;
  const client::KeepErrno keep;
  if (what_ == What::kNamed) TellChange(name_.Get()->text, recursive);
  else TellDoubt();
}

// ---- the file itself -------------------------------------------------------------------------------------------------------

namespace {

bool StatAt(int directory, const char* path, Changes what, struct stat& st) {
  return raw::Call(SYS_newfstatat, directory, raw::Address(path), raw::Address(&st), what == Changes::kEntry ? AT_SYMLINK_NOFOLLOW : 0) == 0;
}

}  // namespace

ChangedFile::ChangedFile(const ChangedName& name, int directory, const char* path, Changes what) {
  struct stat st;
  if (name.inside() && StatAt(directory, path, what, st)) Note(name, st);
}

ChangedFile::ChangedFile(const ChangedName& name, int fd) {
  struct stat st;
  if (name.inside() && raw::Stat(fd, st) == 0) Note(name, st);
}

void ChangedFile::Note(const ChangedName& name, const struct stat& st) {
  was_link_ = S_ISLNK(st.st_mode);
  if (S_ISDIR(st.st_mode)) OpenDirectoriesBelow(name.text());
  if (S_ISDIR(st.st_mode)) return;
  inode_ = st.st_ino;
  other_names_ = st.st_nlink > 1;
  MaterialiseFile(inode_);
}

void ChangedFile::Tell() const {
  if (other_names_) NoteOtherNames(inode_);
  if (inode_ != 0) MaterialiseFile(inode_);  // what another thread has opened meanwhile, if its name leads there still
}

void ReadFromSource(NameAt file, Changes what) {
  const client::KeepErrno keep;
  const ChangedName name(file.directory, file.path, what);
  struct stat st;
  if (!name.inside() || !StatAt(file.directory, file.path, what, st)) return;
  if (S_ISREG(st.st_mode)) {
    NoteOtherNames(st.st_ino);
    MaterialiseFile(st.st_ino);
  } else if (S_ISDIR(st.st_mode) && name.text()[0] != '\0') {
    NoteWatchedDirectory(name.text());
    MaterialiseBelow(name.text());
  }
}

}  // namespace tierd::preload
