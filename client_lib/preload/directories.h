// Directories listed from the index: an object of ours that stands for a DIR. A fixed number of them; opened beyond that, a directory is the source's.
//
// One DIR is used by one thread at a time, as with libc's; what any thread may open is the directory behind it.
#pragma once

#include <dirent.h>

#include "client_lib/src/cached_file.h"

namespace tierd::preload {

struct CachedDirectory;

// From the canonical path, or null: open the source. `fd`, if there is one, is the directory itself, and is closed with it.
CachedDirectory* OpenDirectory(const char* path, int fd = -1);
// Null: a DIR of libc's.
CachedDirectory* OurDirectory(DIR* directory);
DIR* AsDir(CachedDirectory* directory);

dirent64* ReadEntry(CachedDirectory& directory);  // null at the end
long Tell(const CachedDirectory& directory);
void Seek(CachedDirectory& directory, long position);
// Looks the listing up again, as rewinddir must show what has changed. Can that not be had, or is there a descriptor by now, the directory itself is read, which may have got another
// name since. Where that cannot be had either ReadEntry says so.
void Rewind(CachedDirectory& directory);
// A real descriptor of the directory, or -errno, -ESTALE where its name is another's by now; the caller's until Close.
int DescriptorOf(CachedDirectory& directory);
// The same of all that are open at that path and below it, "": of all there are, before this process gives them other names, or rights by which they cannot be opened any more.
void OpenDirectoriesBelow(const char* path);
// Its descriptor, which is left to the caller to close; -1: there is none.
int Close(CachedDirectory& directory);

}  // namespace tierd::preload
