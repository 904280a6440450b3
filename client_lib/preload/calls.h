// What the files of wrappers share: every result of ours goes through Fail or is plain, so that errno is exact and untouched on success.
#pragma once

#include <errno.h>

#include "client_lib/preload/descriptors.h"
#include "client_lib/preload/next.h"
#include "client_lib/preload/process.h"
#include "client_lib/src/older_libc.h"
#include "client_lib/src/thread_state.h"

namespace tierd::preload {

// -errno to -1 and errno.
template <typename Int>
inline Int Result(Int result) {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// Where libc's call is a cancellation point and a hit makes no call that is one: else a thread that reads hits could never be cancelled. Before anything is taken, as libc
// acts before its system call; what is cancelled in close stays open. No thread but this one: nobody has cancelled it.
inline void CancellationPoint() {
  if (!client::OnlyThread()) client::TestCancel();
}

// The kernel has just given that number out: nothing that was known of it holds.
void ForgetAll(int fd);
inline void NewNumber(int fd) {
  if (fd >= 0 && (!raw::IsPlain(fd) || IsOurs(fd))) [[unlikely]] ForgetAll(fd);
}

// A call of libc's that makes a number, once more for each that we can do without when there is none left. Not in a vfork child.
bool GiveNumbersBack();
inline bool HasFailed(long result) { return result < 0; }
inline bool HasFailed(const void* stream) { return stream == nullptr; }
template <typename Make>
inline auto WithAllNumbers(Make make) {
  auto made = make();
  while (HasFailed(made) && errno == EMFILE && GiveNumbersBack()) made = make();
  return made;
}

// The same for a number that is never one of ours.
template <typename Make>
inline int MakeNumber(Make make) {
  if (!Active()) return make();
  const int fd = WithAllNumbers(make);
  NewNumber(fd);
  return fd;
}

// What the exported close does. (By that name this library's own references end in raw system calls, as the core's do.)
int CloseAny(int fd);

// A descriptor of ours for the path, or -1: it is not served. `of_source`: then it is a file below a source, and counted as a real open.
int OpenOurs(const char* path, int flags, bool* of_source);

// True for descriptors that the wrappers emulate. In a vfork child none is: all are real by then.
inline bool Emulate(int fd) { return IsOurs(fd) && vfork_depth == 0; }

// The kernel moves no more bytes by one call (MAX_RW_COUNT).
inline constexpr std::size_t kMostBytes = 0x7ffff000;

// A size or a place that the file system or the processor may refuse, each with its own limit: the
// kernel answers for the source's file. Sizes of 1 TiB and more, negative ones among them.
constexpr bool IsForKernel(std::uint64_t bytes) { return bytes >> 40 != 0; }

// A call that takes no regular file: the kernel refuses the placeholder behind a number of ours as no descriptor (EBADF), and would have said `error` of the file. Of all others
// nothing comes after the call: a return more behind a system call is what costs.
template <typename Call>
inline auto RefuseAsFile(int fd, int error, Call call) {
  if (!Emulate(fd)) [[likely]] return call();
  const auto result = call();
  return result < 0 && errno == EBADF ? Result(static_cast<decltype(call())>(-error)) : result;
}

}  // namespace tierd::preload
