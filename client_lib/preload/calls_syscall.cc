// The `syscall` function: what reads, changes or names one of our descriptors goes through the wrappers; a call that has none makes the descriptor real first.
// Everything else passes. All of it ends in the next `syscall`, never in the next symbol of a wrapper's name (next.h).
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/changing.h"
#include "client_lib/preload/credentials.h"
#include "client_lib/preload/foreign.h"
#include "client_lib/preload/leaving.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/new_process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/reopened.h"
#include "client_lib/preload/takes_library.h"

using namespace tierd::preload;


// The functions behind the exported names (next.h).
extern "C" {
#define HERE(name, same) __attribute__((visibility("hidden"))) decltype(::same) Here_##name;
HERE(chdir, chdir)
HERE(chroot, chroot)
HERE(copy_file_range, copy_file_range)
HERE(creat, creat)
HERE(dup, dup)
HERE(dup2, dup2)
HERE(dup3, dup3)
HERE(fchdir, fchdir)
HERE(fcntl, fcntl64)
HERE(fgetxattr, fgetxattr)
HERE(flistxattr, flistxattr)
HERE(flock, flock)
HERE(fstat, fstat)
HERE(fstatat, fstatat)
HERE(fstatfs, fstatfs64)
HERE(ftruncate, ftruncate64)
HERE(ioctl, ioctl)
HERE(link, link)
HERE(linkat, linkat)
HERE(lseek, lseek64)
HERE(mkdirat, mkdirat)
HERE(mmap, mmap64)
HERE(mount, mount)
HERE(mprotect, mprotect)
HERE(mremap, mremap)
HERE(munmap, munmap)
HERE(open, open64)
HERE(open_by_handle_at, open_by_handle_at)
HERE(openat, openat64)
HERE(pkey_mprotect, pkey_mprotect)
HERE(prctl, prctl)
HERE(pread, pread64)
HERE(preadv, preadv64)
HERE(preadv2, preadv64v2)
HERE(prlimit, prlimit64)
HERE(read, read)
HERE(readv, readv)
HERE(rename, rename)
HERE(renameat, renameat)
HERE(renameat2, renameat2)
HERE(sendfile, sendfile64)
HERE(sendmmsg, sendmmsg)
HERE(sendmsg, sendmsg)
HERE(sendto, sendto)
HERE(setns, setns)
HERE(setrlimit, setrlimit64)
HERE(splice, splice)
HERE(statx, statx)
HERE(truncate, truncate64)
HERE(umount2, umount2)
HERE(unlink, unlink)
HERE(unlinkat, unlinkat)
HERE(unshare, unshare)
HERE(vmsplice, vmsplice)
#undef HERE
__attribute__((visibility("hidden"))) int Here_close_range(unsigned, unsigned, int);
__attribute__((visibility("hidden"))) int Here_mount_setattr(int, const char*, unsigned, struct mount_attr*, size_t);
__attribute__((visibility("hidden"))) int Here_move_mount(int, const char*, int, const char*, unsigned);
__attribute__((visibility("hidden"))) int Here_openat2(int, const char*, void*, size_t);
__attribute__((visibility("hidden"))) int Here_pivot_root(const char*, const char*);
}

namespace {

struct Arguments {
  long a[6];
  int Int(int i) const { return static_cast<int>(a[i]); }
  unsigned Unsigned(int i) const { return static_cast<unsigned>(a[i]); }
  size_t Size(int i) const { return static_cast<size_t>(a[i]); }
  template <typename T>
  T* At(int i) const {
    return reinterpret_cast<T*>(a[i]);
  }
  const char* Path(int i) const { return At<const char>(i); }
};

long Pass(long number, const Arguments& args) {
  return NextSystemCall(number, args.a[0], args.a[1], args.a[2], args.a[3], args.a[4], args.a[5]);
}

// The child comes back through here too, with a count of its own.
long PassFork(long number, const Arguments& args) {
  const NewProcess begins(Conversion::kFork);
  const NewMemory inherited;
  const long child = Pass(number, args);
  if (child == 0) BeginInChild();
  return child;
}

// ---- what has a wrapper ------------------------------------------------------------------------------------------------------

bool OnNumbers(long number, const Arguments& args, long* result) {
  switch (number) {
    case SYS_close: *result = CloseAny(args.Int(0)); return true;
    case SYS_close_range: *result = Here_close_range(args.Unsigned(0), args.Unsigned(1), args.Int(2)); return true;
    case SYS_dup: *result = Here_dup(args.Int(0)); return true;
    case SYS_dup3: *result = Here_dup3(args.Int(0), args.Int(1), args.Int(2)); return true;
    case SYS_fcntl: *result = Here_fcntl(args.Int(0), args.Int(1), args.a[2]); return true;
    case SYS_ioctl: *result = Here_ioctl(args.Int(0), static_cast<unsigned long>(args.a[1]), args.a[2]); return true;
    case SYS_flock: *result = Here_flock(args.Int(0), args.Int(1)); return true;
    case SYS_lseek: *result = Here_lseek(args.Int(0), args.a[1], args.Int(2)); return true;
    case SYS_fstatfs: *result = Here_fstatfs(args.Int(0), args.At<struct statfs64>(1)); return true;
    case SYS_fgetxattr: *result = Here_fgetxattr(args.Int(0), args.Path(1), args.At<void>(2), args.Size(3)); return true;
    case SYS_flistxattr: *result = Here_flistxattr(args.Int(0), args.At<char>(1), args.Size(2)); return true;
    case SYS_fstat: *result = Here_fstat(args.Int(0), args.At<struct stat>(1)); return true;
    case SYS_vmsplice: *result = Here_vmsplice(args.Int(0), args.At<const iovec>(1), args.Size(2), args.Unsigned(3)); return true;
    case SYS_sendto:
      *result = Here_sendto(args.Int(0), args.At<const void>(1), args.Size(2), args.Int(3), args.At<const sockaddr>(4), static_cast<socklen_t>(args.a[5]));
      return true;
    case SYS_sendmsg: *result = Here_sendmsg(args.Int(0), args.At<const msghdr>(1), args.Int(2)); return true;
    case SYS_sendmmsg: *result = Here_sendmmsg(args.Int(0), args.At<mmsghdr>(1), args.Unsigned(2), args.Int(3)); return true;
    case SYS_setrlimit: *result = Here_setrlimit(args.Int(0), args.At<const rlimit64>(1)); return true;
    case SYS_prlimit64:
      *result = Here_prlimit(args.Int(0), static_cast<__rlimit_resource>(args.Int(1)), args.At<const rlimit64>(2), args.At<rlimit64>(3));
      return true;
#ifdef SYS_dup2
    case SYS_dup2: *result = Here_dup2(args.Int(0), args.Int(1)); return true;
#endif
    default: return false;
  }
}

bool OnBytes(long number, const Arguments& args, long* result) {
  switch (number) {
    case SYS_read: *result = Here_read(args.Int(0), args.At<void>(1), args.Size(2)); return true;
    case SYS_pread64: *result = Here_pread(args.Int(0), args.At<void>(1), args.Size(2), args.a[3]); return true;
    case SYS_readv: *result = Here_readv(args.Int(0), args.At<const iovec>(1), args.Int(2)); return true;
    case SYS_preadv: *result = Here_preadv(args.Int(0), args.At<const iovec>(1), args.Int(2), args.a[3]); return true;
    case SYS_preadv2: *result = Here_preadv2(args.Int(0), args.At<const iovec>(1), args.Int(2), args.a[3], args.Int(5)); return true;
    case SYS_sendfile: *result = Here_sendfile(args.Int(0), args.Int(1), args.At<off64_t>(2), args.Size(3)); return true;
    case SYS_copy_file_range:
      *result = Here_copy_file_range(args.Int(0), args.At<off64_t>(1), args.Int(2), args.At<off64_t>(3), args.Size(4), args.Unsigned(5));
      return true;
    case SYS_splice: *result = Here_splice(args.Int(0), args.At<off64_t>(1), args.Int(2), args.At<off64_t>(3), args.Size(4), args.Unsigned(5)); return true;
    case SYS_mmap: *result = raw::Address(Here_mmap(args.At<void>(0), args.Size(1), args.Int(2), args.Int(3), args.Int(4), args.a[5])); return true;
    case SYS_munmap: *result = Here_munmap(args.At<void>(0), args.Size(1)); return true;
    case SYS_mprotect: *result = Here_mprotect(args.At<void>(0), args.Size(1), args.Int(2)); return true;
    case SYS_pkey_mprotect: *result = Here_pkey_mprotect(args.At<void>(0), args.Size(1), args.Int(2), args.Int(3)); return true;
    case SYS_mremap:
      *result = raw::Address(Here_mremap(args.At<void>(0), args.Size(1), args.Size(2), args.Int(3), args.At<void>(4)));
      return true;
    default: return false;
  }
}

bool OnNames(long number, const Arguments& args, long* result) {
  switch (number) {
    case SYS_openat: *result = Here_openat(args.Int(0), args.Path(1), args.Int(2), args.Unsigned(3)); return true;
    case SYS_openat2: *result = Here_openat2(args.Int(0), args.Path(1), args.At<void>(2), args.Size(3)); return true;
    case SYS_newfstatat: *result = Here_fstatat(args.Int(0), args.Path(1), args.At<struct stat>(2), args.Int(3)); return true;
    case SYS_statx: *result = Here_statx(args.Int(0), args.Path(1), args.Int(2), args.Unsigned(3), args.At<struct statx>(4)); return true;
    case SYS_renameat2: *result = Here_renameat2(args.Int(0), args.Path(1), args.Int(2), args.Path(3), args.Unsigned(4)); return true;
    case SYS_linkat: *result = Here_linkat(args.Int(0), args.Path(1), args.Int(2), args.Path(3), args.Int(4)); return true;
    case SYS_unlinkat: *result = Here_unlinkat(args.Int(0), args.Path(1), args.Int(2)); return true;
    case SYS_mkdirat: *result = Here_mkdirat(args.Int(0), args.Path(1), args.Unsigned(2)); return true;
    case SYS_truncate: *result = Here_truncate(args.Path(0), args.a[1]); return true;
    case SYS_ftruncate: *result = Here_ftruncate(args.Int(0), args.a[1]); return true;
    case SYS_open_by_handle_at: *result = Here_open_by_handle_at(args.Int(0), args.At<file_handle>(1), args.Int(2)); return true;
    case SYS_renameat: *result = Here_renameat(args.Int(0), args.Path(1), args.Int(2), args.Path(3)); return true;
    case SYS_chdir: *result = Here_chdir(args.Path(0)); return true;
    case SYS_fchdir: *result = Here_fchdir(args.Int(0)); return true;
    case SYS_mount: *result = Here_mount(args.Path(0), args.Path(1), args.Path(2), static_cast<unsigned long>(args.a[3]), args.At<const void>(4)); return true;
    case SYS_umount2: *result = Here_umount2(args.Path(0), args.Int(1)); return true;
    case SYS_move_mount: *result = Here_move_mount(args.Int(0), args.Path(1), args.Int(2), args.Path(3), args.Unsigned(4)); return true;
    case SYS_mount_setattr: *result = Here_mount_setattr(args.Int(0), args.Path(1), args.Unsigned(2), args.At<mount_attr>(3), args.Size(4)); return true;
    case SYS_chroot: *result = Here_chroot(args.Path(0)); return true;
    case SYS_pivot_root: *result = Here_pivot_root(args.Path(0), args.Path(1)); return true;
    case SYS_unshare: *result = Here_unshare(args.Int(0)); return true;
    case SYS_setns: *result = Here_setns(args.Int(0), args.Int(1)); return true;
#ifdef SYS_open
    case SYS_open: *result = Here_open(args.Path(0), args.Int(1), args.Unsigned(2)); return true;
    case SYS_creat: *result = Here_creat(args.Path(0), args.Unsigned(1)); return true;
    case SYS_link: *result = Here_link(args.Path(0), args.Path(1)); return true;
    case SYS_rename: *result = Here_rename(args.Path(0), args.Path(1)); return true;
    case SYS_unlink: *result = Here_unlink(args.Path(0)); return true;
    // A vfork child may do less than a fork child: fork serves both, and comes back through this frame.
    case SYS_fork:
    case SYS_vfork: *result = PassFork(SYS_fork, args); return true;
#endif
    default: return false;
  }
}

// ---- what has none -----------------------------------------------------------------------------------------------------------

void RealNow(int fd) {
  if (Emulate(fd)) (void)Materialise(fd, Conversion::kSyscall);
}

void Prepare(long number, const Arguments& args) {
  switch (number) {
    case SYS_execve: RealIfNamed(args.Path(0)); [[fallthrough]];
    case SYS_execveat: MaterialiseAll(Conversion::kExec); break;
    case SYS_io_uring_setup:
    case SYS_io_setup:
      // From now on the kernel may be given any number without our seeing it.
      process.real_from_now.store(true, std::memory_order_seq_cst);
      MaterialiseAll(Conversion::kRings);
      break;
    case SYS_epoll_ctl: RealNow(args.Int(2)); break;
    case SYS_kcmp:  // two descriptors of files; others are one as soon as they are real
      RealNow(args.Int(3));
      RealNow(args.Int(4));
      break;
    case SYS_readlinkat: RealIfNamed(args.Path(1)); break;
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll:
      for (size_t i = 0; i < args.Size(1); ++i) RealNow(args.At<pollfd>(0)[i].fd);
      break;
    default: break;
  }
  // The first argument of most calls that take a descriptor; of others a number that happens to be one of ours only makes it slower.
  RealNow(args.Int(0));
}

unsigned long CloneFlags(long number, const Arguments& args) {
  return number == SYS_clone3 ? args.At<const clone_args>(0)->flags : static_cast<unsigned long>(args.a[0]);
}

// ---- what changes a file or a directory, and is told (changing.h) ---------------------------------------------------------------

// Of calls that this libc has no names for.
constexpr long kFchmodat2 = 452, kSetxattrat = 463, kRemovexattrat = 466;

bool OnChanges(long number, const Arguments& args, long* result) {
  const auto name = [&](int directory, int path, Changes what, bool recursive = false) {
    *result = ChangeName(directory, args.Path(path), what, [&] { return static_cast<int>(Pass(number, args)); }, recursive);
    return true;
  };
  const auto descriptor = [&] {
    *result = ChangeNumber(args.Int(0), [&] { return static_cast<int>(Pass(number, args)); });
    return true;
  };
  const auto at = [&](int flags) {
    *result = ChangeAt(args.Int(0), args.Path(1), flags, [&] { return static_cast<int>(Pass(number, args)); });
    return true;
  };
  switch (number) {
    case SYS_fchmod:
    case SYS_fchown:
    case SYS_fsetxattr:
    case SYS_fremovexattr: return descriptor();
    case SYS_mknodat: return name(args.Int(0), 1, Changes::kEntry);
    case SYS_symlinkat: return name(args.Int(1), 2, Changes::kEntry, true);
    case SYS_setxattr:
    case SYS_removexattr: return name(AT_FDCWD, 0, Changes::kTarget);
    case SYS_lsetxattr:
    case SYS_lremovexattr: return name(AT_FDCWD, 0, Changes::kEntry);
    case SYS_fchmodat: return at(0);
    case SYS_fchownat: return at(args.Int(4));
    case SYS_utimensat: return args.a[1] == 0 ? descriptor() : at(args.Int(3));
    case kFchmodat2: return at(args.Int(3));
    case kSetxattrat:
    case kRemovexattrat: return at(args.Int(2));
#ifdef SYS_open
    case SYS_futimesat: return args.a[1] == 0 ? descriptor() : at(0);
    case SYS_chmod:
    case SYS_chown:
    case SYS_utime:
    case SYS_utimes: return name(AT_FDCWD, 0, Changes::kTarget);
    case SYS_lchown:
    case SYS_mkdir:
    case SYS_mknod: return name(AT_FDCWD, 0, Changes::kEntry);
    case SYS_rmdir: return name(AT_FDCWD, 0, Changes::kEntry, true);
    case SYS_symlink: return name(AT_FDCWD, 1, Changes::kEntry, true);
#endif
    default: return false;
  }
}

// Of this thread alone: libc's wrappers would change those of all. What Landlock or a filter of system calls refuses shows in no ids.
bool OnRights(long number, const Arguments& args, long* result) {
  switch (number) {
    case SYS_setuid:
    case SYS_setreuid:
    case SYS_setresuid:
    case SYS_setfsuid:
    case SYS_setgid:
    case SYS_setregid:
    case SYS_setresgid:
    case SYS_setfsgid:
    case SYS_setgroups:
    case SYS_capset: *result = ChangeCredentials([&] { return Pass(number, args); }); return true;
    case SYS_landlock_restrict_self: *result = Leave([&] { return Pass(number, args); }); return true;
    case SYS_prctl: *result = Here_prctl(args.Int(0), args.a[1], args.a[2], args.a[3], args.a[4]); return true;
    case SYS_seccomp:
      if (args.Unsigned(0) > SECCOMP_SET_MODE_FILTER) return false;  // a question
      *result = Leave([&] { return Pass(number, args); });
      return true;
    default: return false;
  }
}

// ---- programs and their ends (foreign.h) -----------------------------------------------------------------------------------------

long PassExec(long number, const Arguments& args) {
  const bool at = number == SYS_execveat;
  if (OpenDescriptions() != 0) Prepare(number, args);
  const Foreign foreign(ForeignUnless(TakesLibrary(at ? args.Int(0) : AT_FDCWD, args.Path(at ? 1 : 0), args.At<char* const>(at ? 3 : 2))));
  return Pass(number, args);
}

// Which child it was matters little: those that are gone are found.
long PassWait(long number, const Arguments& args) {
  const long result = Pass(number, args);
  siginfo_t* const info = number == SYS_waitid ? args.At<siginfo_t>(2) : nullptr;
  if (result < 0 && errno == ECHILD) AfterWait(kNoneLeft);
  if (result >= 0) AfterWait(result > 0 ? static_cast<pid_t>(result) : info != nullptr && result == 0 ? info->si_pid : 0);
  return result;
}

}  // namespace

TIERD_EXPORT(long, syscall, long number, ...) {
  va_list list;
  va_start(list, number);
  Arguments args;
  for (long& argument : args.a) argument = va_arg(list, long);
  va_end(list);
  if (!Active()) return Pass(number, args);
  if (number == SYS_clone || number == SYS_clone3) [[unlikely]] {
    const unsigned long flags = CloneFlags(number, args);
    NoteClone(flags);
    if ((flags & CLONE_VM) == 0) return PassFork(number, args);
    if ((flags & CLONE_FILES) == 0) MaterialiseAll(Conversion::kFork);
    return Pass(number, args);
  }
  if (number == SYS_execve || number == SYS_execveat) [[unlikely]] return PassExec(number, args);
  if (number == SYS_wait4 || number == SYS_waitid) [[unlikely]] return PassWait(number, args);
  long result;
  const ComesBySyscall by_syscall;
  if (OnNumbers(number, args, &result) || OnBytes(number, args, &result) || OnNames(number, args, &result) || OnChanges(number, args, &result)) return result;
  if (OnRights(number, args, &result)) return result;
  if (OpenDescriptions() != 0 || number == SYS_io_uring_setup || number == SYS_io_setup) Prepare(number, args);
  return WithAllNumbers([&] { return Pass(number, args); });
}
