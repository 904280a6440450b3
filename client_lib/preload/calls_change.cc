// Calls that change names and attributes: libc makes the change, then the daemon is told before the caller goes on (read-your-writes).
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <utime.h>

#include <cstring>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/changing.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/reopened.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(int, rename, TIERD_OLD_CALL(rename), const char*, const char*)
TIERD_NEXT_CALL(int, renameat, SYS_renameat, int, const char*, int, const char*)
TIERD_NEXT_CALL(int, renameat2, SYS_renameat2, int, const char*, int, const char*, unsigned)
TIERD_NEXT_CALL(int, link, TIERD_OLD_CALL(link), const char*, const char*)
TIERD_NEXT_CALL(int, linkat, SYS_linkat, int, const char*, int, const char*, int)
TIERD_NEXT(int, symlink, const char*, const char*)
TIERD_NEXT(int, symlinkat, const char*, int, const char*)
TIERD_NEXT_CALL(int, unlink, TIERD_OLD_CALL(unlink), const char*)
TIERD_NEXT_CALL(int, unlinkat, SYS_unlinkat, int, const char*, int)
TIERD_NEXT(int, remove, const char*)
TIERD_NEXT(int, rmdir, const char*)
TIERD_NEXT(int, mkdir, const char*, mode_t)
TIERD_NEXT_CALL(int, mkdirat, SYS_mkdirat, int, const char*, mode_t)
TIERD_NEXT(char*, mkdtemp, char*)
TIERD_NEXT(int, mkfifo, const char*, mode_t)
TIERD_NEXT(int, mkfifoat, int, const char*, mode_t)
TIERD_NEXT(int, bind, int, const sockaddr*, socklen_t)
TIERD_NEXT(int, mknod, const char*, mode_t, dev_t)
TIERD_NEXT(int, mknodat, int, const char*, mode_t, dev_t)
TIERD_NEXT(int, __xmknod, int, const char*, mode_t, dev_t*)
TIERD_NEXT(int, __xmknodat, int, int, const char*, mode_t, dev_t*)
TIERD_NEXT_CALL(int, chdir, SYS_chdir, const char*)
TIERD_NEXT_CALL(int, fchdir, SYS_fchdir, int)

namespace {

template <typename Change>
int Unlink(int directory, const char* path, Change change, bool recursive = false) {
  RealIfNamed(path);
  const ChangedName name(directory, path, Changes::kEntry);
  const ChangedFile file(name, directory, path, Changes::kEntry);
  const int result = change();
  if (!Changed(result)) return result;
  file.Tell();
  name.Tell(recursive || file.was_link());
  return result;
}

// Of the name itself; 0: there is nothing, or it cannot be looked at.
mode_t ModeOf(int directory, const char* path) {
  struct stat st;
  return raw::Call(SYS_newfstatat, directory, raw::Address(path), raw::Address(&st), AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mode : 0;
}

// A directory that gets another name: what is open below it is not found by its path any more.
void RealBelow(const ChangedName& name, int directory, const char* path) {
  if (name.inside() && OpenDescriptions() != 0 && S_ISDIR(ModeOf(directory, path))) MaterialiseBelow(name.text());
}

template <typename Change>
int Rename(int from_directory, const char* from, int to_directory, const char* to, Change change) {
  const ChangedName old_name(from_directory, from, Changes::kEntry);
  const ChangedName new_name(old_name, {from_directory, from}, {to_directory, to});
  const ChangedFile from_file(old_name, from_directory, from, Changes::kEntry);
  const ChangedFile to_file(new_name, to_directory, to, Changes::kEntry);
  RealBelow(old_name, from_directory, from);
  RealBelow(new_name, to_directory, to);
  const int result = change();
  if (!Changed(result)) return result;
  from_file.Tell();
  to_file.Tell();
  if (!old_name.inside() && !new_name.inside()) return result;
  // All below it, if it was a directory: by now it is at `to`, or, exchanged, at `from`, where there is nothing else. Or a link.
  const mode_t moved = ModeOf(to_directory, to);
  const bool all = from_file.was_link() || to_file.was_link() || moved == 0 || S_ISDIR(moved) || S_ISDIR(ModeOf(from_directory, from));
  old_name.Tell(all);
  new_name.Tell(all);
  return result;
}

}  // namespace

TIERD_EXPORT(int, rename, const char* from, const char* to) {
  return Rename(AT_FDCWD, from, AT_FDCWD, to, [&] { return Next_rename()(from, to); });
}
TIERD_EXPORT(int, renameat, int from_directory, const char* from, int to_directory, const char* to) {
  return Rename(from_directory, from, to_directory, to, [&] { return Next_renameat()(from_directory, from, to_directory, to); });
}
TIERD_EXPORT(int, renameat2, int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  return Rename(from_directory, from, to_directory, to, [&] { return Next_renameat2()(from_directory, from, to_directory, to, flags); });
}

// A link changes the link count and ctime of what it names, and a directory.
TIERD_EXPORT(int, linkat, int from_directory, const char* from, int to_directory, const char* to, int flags) {
  RealIfNamed(from);
  if ((flags & AT_EMPTY_PATH) != 0 && Emulate(from_directory)) (void)Materialise(from_directory, Conversion::kAttributes);
  if ((flags & AT_EMPTY_PATH) != 0) {
    if (const int error = MakeFile(from_directory); error != 0) return Result(error);
  }
  const Changes what = (flags & AT_SYMLINK_FOLLOW) != 0 ? Changes::kTarget : Changes::kEntry;
  const ChangedName old_name(from_directory, from, what);
  const ChangedFile file(old_name, from_directory, from, what);
  // Of a number, perhaps of a file that had no name so far (O_TMPFILE): the kernel goes on saying that it has none, so nobody ever learns by which number it is written to.
  const bool of_number = (flags & AT_EMPTY_PATH) != 0 || (from != nullptr && NumberNamed(from) >= 0);
  return ChangeName(to_directory, to, Changes::kEntry, [&] {
    const int result = Next_linkat()(from_directory, from, to_directory, to, flags);
    if (!Changed(result)) return result;
    if (of_number) ReadFromSource({to_directory, to}, Changes::kEntry);
    file.Tell();
    old_name.Tell(false);
    return result;
  });
}
TIERD_EXPORT(int, link, const char* from, const char* to) {
  const ChangedName old_name(AT_FDCWD, from, Changes::kEntry);
  const ChangedFile file(old_name, AT_FDCWD, from, Changes::kEntry);
  return ChangeName(AT_FDCWD, to, Changes::kEntry, [&] {
    const int result = Next_link()(from, to);
    if (!Changed(result)) return result;
    file.Tell();
    old_name.Tell(false);
    return result;
  });
}
// Somebody else may have removed the link that was there: what is known through that goes too.
TIERD_EXPORT(int, symlink, const char* target, const char* path) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_symlink()(target, path); }, true);
}
TIERD_EXPORT(int, symlinkat, const char* target, int directory, const char* path) {
  return ChangeName(directory, path, Changes::kEntry, [&] { return Next_symlinkat()(target, directory, path); }, true);
}
TIERD_EXPORT(int, unlink, const char* path) {
  return Unlink(AT_FDCWD, path, [&] { return Next_unlink()(path); });
}
TIERD_EXPORT(int, unlinkat, int directory, const char* path, int flags) {
  return Unlink(directory, path, [&] { return Next_unlinkat()(directory, path, flags); }, (flags & AT_REMOVEDIR) != 0);
}
TIERD_EXPORT(int, remove, const char* path) {
  return Unlink(AT_FDCWD, path, [&] { return Next_remove()(path); });
}
TIERD_EXPORT(int, rmdir, const char* path) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_rmdir()(path); }, true);
}
TIERD_EXPORT(int, mkdir, const char* path, mode_t mode) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_mkdir()(path, mode); });
}
TIERD_EXPORT(int, mkdirat, int directory, const char* path, mode_t mode) {
  return ChangeName(directory, path, Changes::kEntry, [&] { return Next_mkdirat()(directory, path, mode); });
}
TIERD_EXPORT(int, mkfifo, const char* path, mode_t mode) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_mkfifo()(path, mode); });
}
TIERD_EXPORT(int, mkfifoat, int directory, const char* path, mode_t mode) {
  return ChangeName(directory, path, Changes::kEntry, [&] { return Next_mkfifoat()(directory, path, mode); });
}
TIERD_EXPORT(char*, mkdtemp, char* pattern) {
  char* const made = Next_mkdtemp()(pattern);
  if (made == nullptr) return made;
  const tierd::client::KeepErrno keep;
  ChangedName(AT_FDCWD, made, Changes::kEntry).Tell(false);
  return made;
}
// A socket's name is an entry of a directory.
TIERD_EXPORT(int, bind, int fd, const sockaddr* address, socklen_t bytes) {
  const auto real = [=] { return RefuseAsFile(fd, ENOTSOCK, [=] { return Next_bind()(fd, address, bytes); }); };
  const auto* const local = reinterpret_cast<const sockaddr_un*>(address);
  if (address == nullptr || bytes <= offsetof(sockaddr_un, sun_path) + 1 || address->sa_family != AF_UNIX || local->sun_path[0] == '\0')
    return real();
  char path[sizeof local->sun_path + 1] = {};
  const std::size_t room = bytes - offsetof(sockaddr_un, sun_path);
  std::memcpy(path, local->sun_path, room < sizeof local->sun_path ? room : sizeof local->sun_path);
  return ChangeName(AT_FDCWD, path, Changes::kEntry, real);
}
TIERD_EXPORT(int, mknod, const char* path, mode_t mode, dev_t device) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next_mknod()(path, mode, device); });
}
TIERD_EXPORT(int, mknodat, int directory, const char* path, mode_t mode, dev_t device) {
  return ChangeName(directory, path, Changes::kEntry, [&] { return Next_mknodat()(directory, path, mode, device); });
}
// What programs built before glibc 2.33 call.
TIERD_EXPORT(int, __xmknod, int version, const char* path, mode_t mode, dev_t* device) {
  return ChangeName(AT_FDCWD, path, Changes::kEntry, [&] { return Next___xmknod()(version, path, mode, device); });
}
TIERD_EXPORT(int, __xmknodat, int version, int directory, const char* path, mode_t mode, dev_t* device) {
  return ChangeName(directory, path, Changes::kEntry, [&] { return Next___xmknodat()(version, directory, path, mode, device); });
}

// ---- where relative names begin --------------------------------------------------------------------------------------------

TIERD_EXPORT(int, chdir, const char* path) {
  const int result = Next_chdir()(path);
  ForgetWorkingDirectory();
  return result;
}
TIERD_EXPORT(int, fchdir, int fd) {
  if (Emulate(fd)) return Result(-ENOTDIR);
  const int result = Next_fchdir()(fd);
  ForgetWorkingDirectory();
  return result;
}
