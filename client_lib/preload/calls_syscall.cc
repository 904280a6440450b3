// The `syscall` function: what changes descriptors or processes behind the wrappers goes through them; everything else passes.
#include <fcntl.h>
#include <linux/sched.h>
#include <stdarg.h>
#include <unistd.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/raw.h"

using namespace tierd::preload;

TIERD_NEXT(long, syscall, long, ...)

extern "C" {
int close_range(unsigned, unsigned, int) noexcept;
int dup3(int, int, int) noexcept;
}

namespace {

struct Arguments {
  long a[6];
  int Int(int i) const { return static_cast<int>(a[i]); }
};

// True: done, with *result.
bool Ours(long number, const Arguments& args, long* result) {
  switch (number) {
    case SYS_close: *result = CloseAny(args.Int(0)); return true;
    case SYS_close_range: *result = ::close_range(static_cast<unsigned>(args.a[0]), static_cast<unsigned>(args.a[1]), args.Int(2)); return true;
    case SYS_dup: *result = ::dup(args.Int(0)); return true;
    case SYS_dup3: *result = ::dup3(args.Int(0), args.Int(1), args.Int(2)); return true;
#ifdef SYS_dup2
    case SYS_dup2: *result = ::dup2(args.Int(0), args.Int(1)); return true;
    // A vfork child may do less than a fork child: fork serves both, and comes back through this frame.
    case SYS_fork:
    case SYS_vfork: *result = ::fork(); return true;
#endif
    default: return false;
  }
}

void Prepare(long number, const Arguments& args) {
  switch (number) {
    case SYS_clone:
      if ((args.a[0] & CLONE_FILES) == 0) MaterialiseAll(Conversion::kFork);
      break;
    case SYS_clone3:
      if ((reinterpret_cast<const clone_args*>(args.a[0])->flags & CLONE_FILES) == 0) MaterialiseAll(Conversion::kFork);
      break;
    case SYS_execve:
    case SYS_execveat: MaterialiseAll(Conversion::kExec); break;
    case SYS_io_uring_setup:
      // From now on the kernel may be given any number without our seeing it.
      process.kernel_rings.store(true, std::memory_order_seq_cst);
      MaterialiseAll(Conversion::kRings);
      break;
    default: break;
  }
}

}  // namespace

TIERD_EXPORT(long, syscall, long number, ...) {
  va_list list;
  va_start(list, number);
  Arguments args;
  for (long& argument : args.a) argument = va_arg(list, long);
  va_end(list);
  if (Active()) {
    long result;
    if (Ours(number, args, &result)) return result;
    Prepare(number, args);
  }
  return Next_syscall()(number, args.a[0], args.a[1], args.a[2], args.a[3], args.a[4], args.a[5]);
}
