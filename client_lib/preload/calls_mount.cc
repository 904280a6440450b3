// Mounts that are moved, changed or taken away: names below them mean other files from then on, as after mount (calls_process.cc), or are found otherwise (HAZARDS 2.14).
#include <sys/mount.h>

#include <cstddef>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/leaving.h"
#include "client_lib/preload/raw.h"

using namespace tierd::preload;

TIERD_NEXT(int, umount, const char*)
TIERD_NEXT_CALL(int, umount2, SYS_umount2, const char*, int)

TIERD_EXPORT(int, umount, const char* target) {
  return Leave([&] { return Next_umount()(target); });
}
TIERD_EXPORT(int, umount2, const char* target, int flags) {
  return Leave([&] { return Next_umount2()(target, flags); });
}
// Older libraries have no such names.
TIERD_EXPORT(int, move_mount, int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  return Leave([&] { return static_cast<int>(Result(raw::Call(SYS_move_mount, from_directory, raw::Address(from), to_directory, raw::Address(to), flags))); });
}
TIERD_EXPORT(int, mount_setattr, int directory, const char* path, unsigned flags, struct mount_attr* attributes, std::size_t bytes) {
  return Leave([&] {
    return static_cast<int>(Result(raw::Call(SYS_mount_setattr, directory, raw::Address(path), flags, raw::Address(attributes), static_cast<long>(bytes))));
  });
}
