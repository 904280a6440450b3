// opendir and what is done to a DIR. Directories opened by descriptor (fdopendir: fts, find, tar) are the source's.
#include <dirent.h>
#include <fcntl.h>

#include <cstring>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/directories.h"
#include "client_lib/preload/paths.h"

using namespace tierd::preload;

TIERD_NEXT(DIR*, opendir, const char*)
TIERD_NEXT(int, closedir, DIR*)
TIERD_NEXT(dirent64*, readdir, DIR*)
TIERD_NEXT(int, readdir_r, DIR*, dirent64*, dirent64**)
TIERD_NEXT(void, rewinddir, DIR*)
TIERD_NEXT(long, telldir, DIR*)
TIERD_NEXT(void, seekdir, DIR*, long)
TIERD_NEXT(int, dirfd, DIR*)

namespace {

__attribute__((noinline)) DIR* TryListing(const char* path) {
  const tierd::client::KeepErrno keep;
  tierd::client::PathText room;
  const char* located = Locate(AT_FDCWD, path, room);
  const std::size_t bytes = std::strlen(path);
  if (located == nullptr && bytes > 1 && bytes < sizeof room.text && path[bytes - 1] == '/') {
    // A trailing slash asks for a directory, which is what is opened here.
    tierd::client::PathText plain;
    std::size_t left = bytes;
    while (left > 1 && path[left - 1] == '/') --left;
    std::memcpy(plain.text, path, left);
    plain.text[left] = '\0';
    located = Locate(AT_FDCWD, plain.text, room);
    if (located == plain.text) located = std::strcpy(room.text, plain.text);
  }
  return located != nullptr ? AsDir(OpenDirectory(located)) : nullptr;
}

}  // namespace

TIERD_EXPORT(DIR*, opendir, const char* path) {
  if (Active() && path != nullptr && path[0] != '\0' && MayBeInside(AT_FDCWD, path)) {
    if (DIR* const ours = TryListing(path); ours != nullptr) return ours;
  }
  return Next_opendir()(path);
}

TIERD_EXPORT(int, closedir, DIR* directory) {
  if (CachedDirectory* const ours = OurDirectory(directory); ours != nullptr) {
    Close(*ours);
    return 0;
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
