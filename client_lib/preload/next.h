// How a wrapper is written: the symbol that it exports, and where a call ends that is not ours.
//
//   TIERD_NEXT_CALL(int, dup, SYS_dup, int)
//   TIERD_EXPORT(int, dup, int fd) { ...; return Next_dup()(fd); }
//
// Next_dup() is one of three functions of the same type:
// - the next symbol: libc's, or that of another library that hooks the name;
// - the system call itself, for a call that the program made by `syscall`: a library may implement
//   the next symbol by `syscall`, which is ours again;
// - libc's own symbol, if the next one is another library's and has come back to us by another name
//   of the call: an `open` that is implemented by `open64`.
// So every chain of hooks ends. A wrong guess (a signal handler, a jump out of a call) skips another
// library's hook and does no other harm.
//
// The exported symbol is named by an assembler label: libc's headers redirect and declare these
// names in too many ways to define them under their own.
// All next symbols are resolved when the library starts, because a signal handler may not call
// dlsym. A wrapper that is called earlier resolves its own.
#pragma once

#include <sys/syscall.h>
#include <time.h>

#include <cstddef>
#include <cstdint>

namespace tierd::preload {

// Aligned to its size: they lie one after the other in a section, where compilers align large objects.
struct alignas(64) NextSymbol {
  const char* name;
  void* address;          // what Next_name() returns: the next symbol, or `pass`
  void* pass = nullptr;   // stands before a next symbol that is not libc's
  void* other = nullptr;  // that symbol
  void* libc = nullptr;   // libc's own; null: it has none
};
static_assert(sizeof(NextSymbol) == 64);

// The address for that name, resolved. Ends the process if there is none, and nothing that stands in
// for it (older_libc.cc), as the dynamic linker would.
void* ResolveNext(NextSymbol& symbol);
// Resolves all of them; a name that this libc does not have stays unresolved.
void ResolveAllNext();
// What stands in for a function that this libc does not have (older_libc.cc). Null: nothing.
void* InsteadOfNext(const char* name);

// While an object of it lives, this thread's calls end in the system call.
class ComesBySyscall {
 public:
  ComesBySyscall();
  ~ComesBySyscall();
  ComesBySyscall(const ComesBySyscall&) = delete;
  ComesBySyscall& operator=(const ComesBySyscall&) = delete;

  static bool MayBeSo() { return frame_ != 0; }
  static bool IsSo();  // false after a jump out of that call

 private:
  // Of the exported `syscall` that this thread is in; 0: it is in none.
  static __thread std::uintptr_t frame_ __attribute__((tls_model("initial-exec")));
  const std::uintptr_t before_;
};

// A call of another library's next symbol, known to the thread while it lasts.
class PassedOn {
 public:
  explicit PassedOn(const NextSymbol& symbol);
  ~PassedOn();
  PassedOn(const PassedOn&) = delete;
  PassedOn& operator=(const PassedOn&) = delete;
  void* end() const { return end_; }

 private:
  unsigned before_;
  void* end_;
};

// libc's own clock_gettime: the deadlines of the library follow no hook's time (libfaketime).
extern int (*libc_clock)(clockid_t, timespec*);

// The next `syscall`.
long NextSystemCall(long number, long a, long b, long c, long d, long e, long f);

namespace next_detail {

inline constexpr long kNoNumber = -1;
inline constexpr std::size_t kWords = 6;  // of a system call

struct Words {
  long word[kWords] = {};
};

template <typename T>
long ToWord(T value) {
  if constexpr (sizeof(T) == sizeof(long)) return (long)value;
  else return static_cast<long>(value);
}

template <typename Ret>
Ret CallKernel(long number, const Words& w) {
  const long* const a = w.word;
  const bool splits_offset = number == SYS_preadv2;  // the flags are the sixth word
  return (Ret)NextSystemCall(number, a[0], a[1], a[2], a[3], splits_offset ? 0 : a[4],
                             splits_offset ? a[4] : a[5]);
}

// Pass: what stands before another library's symbol. Other: where a call ends that came by `syscall`,
// or that finds its next symbol unresolved. Functions, so that a wrapper calls nothing else.
template <NextSymbol& symbol, long number, typename Function>
struct Ends;

template <NextSymbol& symbol, long number, typename Ret, typename... Args>
struct Ends<symbol, number, Ret (*)(Args...)> {
  static Ret Pass(Args... args) {
    const PassedOn passed(symbol);
    return reinterpret_cast<Ret (*)(Args...)>(passed.end())(args...);
  }
  static Ret Other(Args... args) {
    if constexpr (number != kNoNumber) {
      if (ComesBySyscall::IsSo()) return CallKernel<Ret>(number, {{ToWord(args)...}});
    }
    return reinterpret_cast<Ret (*)(Args...)>(ResolveNext(symbol))(args...);
  }
};

// What follows the `...` comes in the same places as parameters do, on all processors that we know.
// Words that the caller did not give are whatever is there, and nobody looks at them.
template <NextSymbol& symbol, long number, typename Ret, typename... Args>
struct Ends<symbol, number, Ret (*)(Args..., ...)> {
  static Ret Pass(Args... args, long a, long b, long c, long d, long e, long f) {
    const PassedOn passed(symbol);
    return reinterpret_cast<Ret (*)(Args..., ...)>(passed.end())(args..., a, b, c, d, e, f);
  }
  static Ret Other(Args... args, long a, long b, long c, long d, long e, long f) {
    if constexpr (number != kNoNumber) {
      if (ComesBySyscall::IsSo()) {
        Words words{{ToWord(args)...}};
        const long more[] = {a, b, c, d, e};
        for (std::size_t i = sizeof...(Args); i < kWords; ++i) {
          words.word[i] = more[i - sizeof...(Args)];
        }
        return CallKernel<Ret>(number, words);
      }
    }
    const auto next = reinterpret_cast<Ret (*)(Args..., ...)>(ResolveNext(symbol));
    return next(args..., a, b, c, d, e, f);
  }
};

}  // namespace next_detail
}  // namespace tierd::preload

#define TIERD_NEXT_ENDS(ret, name, number, ...)                                                    \
  namespace {                                                                                      \
  extern tierd::preload::NextSymbol next_##name;                                                   \
  using Ends_##name = tierd::preload::next_detail::Ends<next_##name, number, ret (*)(__VA_ARGS__)>; \
  __attribute__((section("tierd_next"), used)) tierd::preload::NextSymbol next_##name{             \
      #name, nullptr, reinterpret_cast<void*>(&Ends_##name::Pass)};                                \
  inline auto Next_##name() {                                                                      \
    void* address = next_##name.address;                                                           \
    if (address == nullptr || (number != tierd::preload::next_detail::kNoNumber &&                 \
                               tierd::preload::ComesBySyscall::MayBeSo())) [[unlikely]] {          \
      address = reinterpret_cast<void*>(&Ends_##name::Other);                                      \
    }                                                                                              \
    return reinterpret_cast<ret (*)(__VA_ARGS__)>(address);                                        \
  }                                                                                                \
  }

// A name that no system call reaches (calls_syscall.cc).
#define TIERD_NEXT(ret, name, ...) \
  TIERD_NEXT_ENDS(ret, name, tierd::preload::next_detail::kNoNumber, __VA_ARGS__)
// A name with a system call of the same arguments, in the same order, that comes here too.
// TIERD_OLD_CALL: one that newer processors do not have.
#ifdef SYS_open
#define TIERD_OLD_CALL(name) SYS_##name
#else
#define TIERD_OLD_CALL(name) tierd::preload::next_detail::kNoNumber
#endif
#define TIERD_NEXT_CALL(ret, name, number, ...) TIERD_NEXT_ENDS(ret, name, number, __VA_ARGS__)

// The exported symbol only jumps to the function, Here_name: UCX overwrites the first instructions of
// the symbol, and what this library calls of its own must not meet them.
#if defined(__x86_64__)
#define TIERD_JUMP_HERE(symbol, name) "  endbr64\n  jmp Here_" name "\n"
#elif defined(__aarch64__)
#define TIERD_JUMP_HERE(symbol, name) "  bti c\n  b Here_" name "\n"
#endif
#define TIERD_SYMBOL(symbol, name)                                                                 \
  __asm__("  .pushsection .text\n"                                                                 \
          "  .p2align 5\n"                                                                         \
          "  .globl " symbol "\n"                                                                  \
          "  .type " symbol ", @function\n" symbol ":\n"                                           \
          TIERD_JUMP_HERE(symbol, name)                                                            \
          "  .p2align 5\n"                                                                         \
          "  .size " symbol ", .-" symbol "\n"                                                     \
          "  .popsection\n");

#define TIERD_EXPORT(ret, name, ...)                                                               \
  TIERD_SYMBOL(#name, #name)                                                                       \
  extern "C" __attribute__((visibility("hidden"))) ret Here_##name(__VA_ARGS__);                   \
  extern "C" ret Here_##name(__VA_ARGS__)

// A second name of an exported symbol: open64 is open where off_t has 64 bits anyway.
#define TIERD_ALIAS(ret, alias_name, name, ...) TIERD_SYMBOL(#alias_name, #name)
