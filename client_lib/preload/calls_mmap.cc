// mmap and what undoes it: mappings of cached files are made of cache memory where that can be held, else of the source's file.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/mappings.h"
#include "client_lib/preload/materialise.h"

using namespace tierd::preload;

TIERD_NEXT(void*, mmap, void*, size_t, int, int, int, off64_t)
TIERD_NEXT(int, munmap, void*, size_t)
TIERD_NEXT(void*, mremap, void*, size_t, size_t, int, ...)
TIERD_NEXT(int, mprotect, void*, size_t, int)

namespace {

__attribute__((noinline)) void* MapOurs(void* address, size_t length, int protection, int flags, int fd, off64_t offset) {
  int source = -1;
  {
    const tierd::client::KeepErrno keep;
    const Using use(fd);
    if (use) {
      const MapRequest request{address, length, protection, flags, static_cast<std::uint64_t>(offset)};
      if (offset >= 0) {
        if (void* const made = MapCached(*use, request); made != nullptr) return made;
      }
      source = SourceOf(*use, SourceUse::kMmap);
    }
  }
  if (source >= 0) return Next_mmap()(address, length, protection, flags, source, offset);
  (void)Materialise(fd, Conversion::kAttributes);
  return Next_mmap()(address, length, protection, flags, fd, offset);
}

}  // namespace

TIERD_EXPORT(void*, mmap, void* address, size_t length, int protection, int flags, int fd, off64_t offset) {
  if ((flags & MAP_ANONYMOUS) == 0 && Emulate(fd)) return MapOurs(address, length, protection, flags, fd, offset);
  return Next_mmap()(address, length, protection, flags, fd, offset);
}
TIERD_ALIAS(void*, mmap64, mmap, void*, size_t, int, int, int, off64_t)

TIERD_EXPORT(int, munmap, void* address, size_t length) {
  const int result = Next_munmap()(address, length);
  if (result == 0 && AnyMappings()) NoteUnmapped(address, length);
  return result;
}

TIERD_EXPORT(void*, mremap, void* address, size_t old_length, size_t length, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void* const place = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  if (AnyMappings()) NoteMoved(address, old_length);
  return Next_mremap()(address, old_length, length, flags, place);
}

TIERD_EXPORT(int, mprotect, void* address, size_t length, int protection) {
  if ((protection & PROT_WRITE) != 0 && AnyMappings() && MakeWritable(address, length, protection)) return 0;
  return Next_mprotect()(address, length, protection);
}
