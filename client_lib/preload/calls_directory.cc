// opendir, fdopendir, scandir and what is done to a DIR. (libc's own fts and nftw list by calls that nobody sees: theirs are the source's.)
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/changes.h"
#include "client_lib/preload/directories.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/raw.h"

using namespace tierd::preload;

TIERD_NEXT(DIR*, opendir, const char*)
TIERD_NEXT(DIR*, fdopendir, int)
TIERD_NEXT(int, scandir, const char*, dirent64***, int (*)(const dirent64*), int (*)(const dirent64**, const dirent64**))
TIERD_NEXT(int, closedir, DIR*)
TIERD_NEXT(dirent64*, readdir, DIR*)
TIERD_NEXT(int, readdir_r, DIR*, dirent64*, dirent64**)
TIERD_NEXT(void, rewinddir, DIR*)
TIERD_NEXT(long, telldir, DIR*)
TIERD_NEXT(void, seekdir, DIR*, long)
TIERD_NEXT(int, dirfd, DIR*)

namespace {

// A path that ends in '/' or in "." asks for a directory, which is what is opened here: what is behind that can be left out.
bool EndsAsDirectory(const char* path, std::size_t bytes) { return bytes > 1 && (path[bytes - 1] == '/' || (path[bytes - 1] == '.' && path[bytes - 2] == '/')); }

__attribute__((noinline)) DIR* TryListing(const char* path) {
  const tierd::client::KeepErrno keep;
  Room room;
  Room shortened;
  std::size_t bytes = std::strlen(path);
  if (bytes < PATH_MAX && EndsAsDirectory(path, bytes)) {
    tierd::client::PathText* const plain = shortened.Get();
    if (plain == nullptr) return nullptr;
    while (EndsAsDirectory(path, bytes)) --bytes;
    std::memcpy(plain->text, path, bytes);
    plain->text[bytes] = '\0';
    path = plain->text;
  }
  const char* const located = Locate(AT_FDCWD, path, true, room);
  if (located == nullptr || (AnyUntold() && !TellUntold())) return nullptr;
  return AsDir(OpenDirectory(located));
}

}  // namespace

TIERD_EXPORT(DIR*, opendir, const char* path) {
  if (Active() && path != nullptr && path[0] != '\0' && MayBeInside(AT_FDCWD, path)) {
    if (DIR* const ours = TryListing(path); ours != nullptr) return ours;
  }
  DIR* const directory = Active() ? WithAllNumbers([=] { return Next_opendir()(path); }) : Next_opendir()(path);
  if (directory != nullptr && Active() && IsWorthALook(path)) [[unlikely]] LearnLink(path, Next_dirfd()(directory));
  return directory;
}

namespace {

// The names of an open directory, if it was just opened: the index knows nothing of a position in the middle.
__attribute__((noinline)) DIR* TryListingOf(int fd) {
  const tierd::client::KeepErrno keep;
  struct stat st;
  Room room;
  tierd::client::PathText* const name = room.Get();
  if (name == nullptr || raw::Stat(fd, st) != 0 || !S_ISDIR(st.st_mode) || raw::Call(SYS_lseek, fd, 0, SEEK_CUR) != 0) return nullptr;
  if (!NameOfDescriptor(fd, *name) || !BelowRoots(name->text) || (AnyUntold() && !TellUntold())) return nullptr;
  const long flags = raw::Call(SYS_fcntl, fd, F_GETFL);
  if (flags < 0 || (flags & (O_PATH | O_ACCMODE)) != 0) return nullptr;
  DIR* const ours = AsDir(OpenDirectory(name->text, fd));
  if (ours != nullptr) raw::Call(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);  // as fdopendir does
  return ours;
}

}  // namespace

TIERD_EXPORT(DIR*, fdopendir, int fd) {
  if (Active() && !Emulate(fd) && DirectoryMayBeInside(fd)) {
    if (DIR* const ours = TryListingOf(fd); ours != nullptr) return ours;
  }
  if (Emulate(fd)) {
    errno = ENOTDIR;
    return nullptr;
  }
  return Next_fdopendir()(fd);
}

TIERD_EXPORT(int, closedir, DIR* directory) {
  if (CachedDirectory* const ours = OurDirectory(directory); ours != nullptr) {
    const int fd = Close(*ours);
    return fd >= 0 ? CloseAny(fd) : 0;
  }
  if (Active() && directory != nullptr) ForgetDirectory(Next_dirfd()(directory));
  return Next_closedir()(directory);
}

TIERD_EXPORT(dirent64*, readdir, DIR* directory) {
  CachedDirectory* const ours = OurDirectory(directory);
  return ours != nullptr ? ReadEntry(*ours) : Next_readdir()(directory);
}
TIERD_ALIAS(dirent64*, readdir64, readdir, DIR*)

TIERD_EXPORT(int, readdir_r, DIR* directory, dirent64* entry, dirent64** result) {
  CachedDirectory* const ours = OurDirectory(directory);
  if (ours == nullptr) return Next_readdir_r()(directory, entry, result);
  const dirent64* const found = ReadEntry(*ours);
  *result = nullptr;
  if (found != nullptr && found->d_reclen > sizeof *entry) return ENAMETOOLONG;
  *result = found != nullptr ? entry : nullptr;
  if (found != nullptr) std::memcpy(entry, found, found->d_reclen);
  return 0;
}
TIERD_ALIAS(int, readdir64_r, readdir_r, DIR*, dirent64*, dirent64**)

TIERD_EXPORT(void, rewinddir, DIR* directory) {
  if (CachedDirectory* const ours = OurDirectory(directory); ours != nullptr) return Rewind(*ours);
  Next_rewinddir()(directory);
}

TIERD_EXPORT(long, telldir, DIR* directory) {
  const CachedDirectory* const ours = OurDirectory(directory);
  return ours != nullptr ? Tell(*ours) : Next_telldir()(directory);
}

TIERD_EXPORT(void, seekdir, DIR* directory, long position) {
  if (CachedDirectory* const ours = OurDirectory(directory); ours != nullptr) return Seek(*ours, position);
  Next_seekdir()(directory, position);
}

TIERD_EXPORT(int, dirfd, DIR* directory) {
  CachedDirectory* const ours = OurDirectory(directory);
  return ours != nullptr ? Result(DescriptorOf(*ours)) : Next_dirfd()(directory);
}

// ---- scandir ---------------------------------------------------------------------------------------------------------------

extern "C" {
// The application's malloc, not the one that this library has for itself: it frees what it gets.
void* __real_malloc(size_t bytes);
void* __real_realloc(void* memory, size_t bytes);
void __real_free(void* memory);
}

namespace {

using Select = int (*)(const dirent64*);
using Compare = int (*)(const dirent64**, const dirent64**);

// The entries that `select` wants, in the application's memory.
class Entries {
 public:
  ~Entries() {
    for (std::size_t i = 0; i < count_; ++i) __real_free(list_[i]);
    __real_free(list_);
  }
  bool Add(const dirent64& entry) {
    if (count_ == room_) {
      const std::size_t more = room_ == 0 ? 32 : room_ * 2;
      void* const larger = __real_realloc(list_, more * sizeof *list_);
      if (larger == nullptr) return false;
      list_ = static_cast<dirent64**>(larger);
      room_ = more;
    }
    void* const copy = __real_malloc(entry.d_reclen);
    if (copy == nullptr) return false;
    std::memcpy(copy, &entry, entry.d_reclen);
    list_[count_++] = static_cast<dirent64*>(copy);
    return true;
  }
  int HandOver(dirent64*** list, Compare compare) {
    if (count_ > 1 && compare != nullptr) ::qsort(list_, count_, sizeof *list_, reinterpret_cast<int (*)(const void*, const void*)>(compare));
    *list = list_;
    const auto count = static_cast<int>(count_);
    list_ = nullptr;
    count_ = 0;
    return count;
  }

 private:
  dirent64** list_ = nullptr;
  std::size_t count_ = 0;
  std::size_t room_ = 0;
};

int ListInto(CachedDirectory& directory, dirent64*** list, Select select, Compare compare) {
  Entries entries;
  while (const dirent64* entry = ReadEntry(directory)) {
    if (select != nullptr && select(entry) == 0) continue;
    if (!entries.Add(*entry)) return Result(-ENOMEM);
  }
  return entries.HandOver(list, compare);
}

}  // namespace

TIERD_EXPORT(int, scandir, const char* path, dirent64*** list, Select select, Compare compare) {
  if (Active() && path != nullptr && path[0] != '\0' && MayBeInside(AT_FDCWD, path)) {
    if (CachedDirectory* const ours = OurDirectory(TryListing(path)); ours != nullptr) {
      const int count = ListInto(*ours, list, select, compare);
      (void)Close(*ours);
      return count;
    }
  }
  if (!Active()) return Next_scandir()(path, list, select, compare);
  return WithAllNumbers([=] { return Next_scandir()(path, list, select, compare); });
}
TIERD_ALIAS(int, scandir64, scandir, const char*, dirent64***, Select, Compare)
