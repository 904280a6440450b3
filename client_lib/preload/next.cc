#include "client_lib/preload/next.h"

#include <dlfcn.h>

#include "client_lib/preload/find_symbol.h"
#include "client_lib/preload/raw.h"

extern "C" {
extern tierd::preload::NextSymbol __start_tierd_next[] __attribute__((visibility("hidden")));
extern tierd::preload::NextSymbol __stop_tierd_next[] __attribute__((visibility("hidden")));
}

TIERD_NEXT(long, syscall, long, ...)

namespace tierd::preload {
namespace {

// False for another library's symbol, which is `other` then.
bool ResolveToLibc(NextSymbol& symbol) {
  void* const found = FindNext(symbol.name);
  if (found == nullptr) return true;
  if (symbol.pass == nullptr || IsInLibc(found)) {
    symbol.address = found;
    return true;
  }
  symbol.other = found;
  return false;
}

// ---- calls that other libraries' symbols are at --------------------------------------------------

constexpr unsigned kMostPassed = 8;  // deeper chains of hooks end in libc
struct Passing {
  unsigned count;
  const NextSymbol* symbol[kMostPassed];
  std::uintptr_t frame[kMostPassed];  // of the PassedOn
};
__thread Passing passing __attribute__((tls_model("initial-exec")));

}  // namespace

PassedOn::PassedOn(const NextSymbol& symbol) : end_(symbol.other) {
  const auto here = reinterpret_cast<std::uintptr_t>(this);
  unsigned count = passing.count < kMostPassed ? passing.count : kMostPassed;
  while (count > 0 && passing.frame[count - 1] <= here) --count;  // left by a jump
  before_ = count;
  bool again = count == kMostPassed;
  for (unsigned i = 0; i < count; ++i) again = again || passing.symbol[i] == &symbol;
  if (again && symbol.libc != nullptr) end_ = symbol.libc;
  if (count == kMostPassed) return;
  passing.symbol[count] = &symbol;
  passing.frame[count] = here;
  passing.count = count + 1;
}

PassedOn::~PassedOn() { passing.count = before_; }

__thread std::uintptr_t ComesBySyscall::frame_ = 0;

ComesBySyscall::ComesBySyscall() : before_(frame_) { frame_ = reinterpret_cast<std::uintptr_t>(this); }
ComesBySyscall::~ComesBySyscall() { frame_ = before_; }

__attribute__((noinline)) bool ComesBySyscall::IsSo() {
  if (frame_ == 0) return false;
  if (reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) < frame_) return true;
  frame_ = 0;
  return false;
}

long NextSystemCall(long number, long a, long b, long c, long d, long e, long f) {
  return Next_syscall()(number, a, b, c, d, e, f);
}

void* ResolveNext(NextSymbol& symbol) {
  if (symbol.address != nullptr) return symbol.address;
  // Before the library has started. An allocator may be the caller (tcmalloc maps its first memory
  // under its lock), so libc is not looked up, which allocates.
  if (!ResolveToLibc(symbol)) return symbol.pass;
  if (symbol.address == nullptr) raw::Call(SYS_exit_group, 127);
  return symbol.address;
}

namespace {
int AskKernel(clockid_t id, timespec* time) {
  return static_cast<int>(raw::Call(SYS_clock_gettime, id, raw::Address(time)));
}
}  // namespace

int (*libc_clock)(clockid_t, timespec*) = &AskKernel;

void ResolveAllNext() {
  void* clock = LookUp(RTLD_DEFAULT, "clock_gettime");
  if (clock == nullptr || !IsInLibc(clock)) clock = FindInLibc("clock_gettime");
  if (clock != nullptr) libc_clock = reinterpret_cast<int (*)(clockid_t, timespec*)>(clock);
  for (NextSymbol* symbol = __start_tierd_next; symbol != __stop_tierd_next; ++symbol) {
    if (symbol->address != nullptr || ResolveToLibc(*symbol)) continue;
    symbol->libc = FindInLibc(symbol->name);
    symbol->address = symbol->pass;
  }
}

}  // namespace tierd::preload
