// mmap and what undoes it: mappings of cached files are made of cache memory where that can be held, else of the source's file.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>

#include "client_lib/preload/cached_open.h"
#include "client_lib/preload/calls.h"
#include "client_lib/preload/kept_mappings.h"
#include "client_lib/preload/mapped_frames.h"
#include "client_lib/preload/mappings.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/real_reads.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(void*, mmap, SYS_mmap, void*, size_t, int, int, int, off64_t)
TIERD_NEXT_CALL(int, munmap, SYS_munmap, void*, size_t)
TIERD_NEXT_CALL(void*, mremap, SYS_mremap, void*, size_t, size_t, int, ...)
TIERD_NEXT_CALL(int, mprotect, SYS_mprotect, void*, size_t, int)
TIERD_NEXT_CALL(int, pkey_mprotect, SYS_pkey_mprotect, void*, size_t, int, int)

namespace {

// In a vfork child the table is the parent's, whose other threads run on: what the child unmaps of it keeps its leases.
inline bool AnyHere() { return AnyMappings() && vfork_depth == 0; }

__attribute__((noinline)) void* MapOurs(void* address, size_t length, int protection, int flags, int fd, off64_t offset) {
  {
    const Using use(fd);
    if (use) {
      int source = -1;
      {
        const tierd::client::KeepErrno keep;
        if (MayHaveChanged(*use) && HasChanged(*use) && MaterialiseAsIs(fd, Conversion::kChanged))
          return Next_mmap()(address, length, protection, flags, fd, offset);
        const MapRequest request{address, length, protection, flags, static_cast<std::uint64_t>(offset)};
        if (offset >= 0) {
          if (void* const made = MapCached(*use, request); made != nullptr) return made;
        }
        source = SourceOf(*use, SourceUse::kMmap);
      }
      // While it is in use: then the number is the file's.
      if (source >= 0) return Next_mmap()(address, length, protection, flags, source, offset);
    }
  }
  (void)Materialise(fd, Conversion::kAttributes);
  return Next_mmap()(address, length, protection, flags, fd, offset);
}

void* Map(void* address, size_t length, int protection, int flags, int fd, off64_t offset) {
  if ((flags & MAP_ANONYMOUS) == 0 && Emulate(fd)) return MapOurs(address, length, protection, flags, fd, offset);
  if ((flags & MAP_ANONYMOUS) == 0 && ReadsSource(fd)) [[unlikely]] Count(SourceUse::kMmap);
  return Next_mmap()(address, length, protection, flags, fd, offset);
}

}  // namespace

TIERD_EXPORT(void*, mmap, void* address, size_t length, int protection, int flags, int fd, off64_t offset) {
  if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0 && vfork_depth == 0) [[unlikely]] ForgetKeptMappings(RangeOf(address, length));
  if ((flags & MAP_FIXED) == 0 || !AnyHere()) return Map(address, length, protection, flags, fd, offset);
  TakenFrames replaced(RangeOf(address, length));
  void* const made = Map(address, length, protection, flags, fd, offset);
  // A failure may have come before or after the old pages went.
  if (made != MAP_FAILED) replaced.Gone();
  else replaced.KeepForGood();
  return made;
}
TIERD_ALIAS(void*, mmap64, mmap, void*, size_t, int, int, int, off64_t)

TIERD_EXPORT(int, munmap, void* address, size_t length) {
  if (!AnyHere()) return Next_munmap()(address, length);
  const AddressRange range = RangeOf(address, length);
  TakenFrames taken(range);
  if (const MappedFrames* const whole = taken.Whole(range); whole != nullptr) {
    if (KeepMapping(range, whole->first)) {
      taken.Gone();
      return 0;
    }
  }
  const int result = Next_munmap()(address, length);
  if (result == 0) taken.Gone();
  else taken.Restore();
  return result;
}

TIERD_EXPORT(void*, mremap, void* address, size_t old_length, size_t length, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void* const place = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  if (place != nullptr && vfork_depth == 0) ForgetKeptMappings(RangeOf(place, length));
  if (!AnyHere()) return Next_mremap()(address, old_length, length, flags, place);
  const AddressRange old = RangeOf(address, old_length != 0 ? old_length : 1);
  const bool moves = old_length == 0 || (flags & ~MREMAP_MAYMOVE) != 0;
  if (moves || length > old_length) {
    const tierd::client::KeepErrno keep;
    ReplaceFrames(old, FileCopies::kToo);
  }
  if ((moves || length > old_length) && ShowsFrames(old)) {
    errno = ENOMEM;  // behind a frame lies somebody else's: there is no more of this mapping
    return MAP_FAILED;
  }
  const AddressRange rest = RangeOf(address, length);
  TakenFrames cut(rest.end < old.end && !moves ? AddressRange{rest.end, old.end} : AddressRange{0, 0});
  TakenFrames replaced(place != nullptr ? RangeOf(place, length) : AddressRange{0, 0});
  TakenFrames copies(moves || length > old_length ? old : AddressRange{0, 0});
  void* const made = Next_mremap()(address, old_length, length, flags, place);
  if (made != MAP_FAILED) {
    const bool stays = old_length == 0 || (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) != 0;
    cut.Gone();
    replaced.Gone();
    copies.Moved(old, RangeOf(made, length),
                 stays ? TakenFrames::Old::kBoth : TakenFrames::Old::kGone);
  } else {
    cut.Restore();
    copies.Restore();
    replaced.KeepForGood();
  }
  return made;
}

namespace {
void BeforeProtecting(const void* address, size_t length, int protection) {
  if (!AnyHere()) return;
  const tierd::client::KeepErrno keep;
  ReplaceProtectedFrames(RangeOf(address, length), protection);
}
}  // namespace

TIERD_EXPORT(int, mprotect, void* address, size_t length, int protection) {
  BeforeProtecting(address, length, protection);
  return Next_mprotect()(address, length, protection);
}
TIERD_EXPORT(int, pkey_mprotect, void* address, size_t length, int protection, int key) {
  BeforeProtecting(address, length, protection);
  return Next_pkey_mprotect()(address, length, protection, key);
}
