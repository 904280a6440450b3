// System calls as they are: nothing interposes them, they leave errno alone and are no cancellation points. What the preload library and the libtier core
// inside it use for their own work, so that they never meet the wrappers that they implement. Any thread, signal handlers too.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tierd::preload::raw {

// The result, or -errno.
#if defined(__x86_64__)
inline long Call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
inline long Call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#else
#error "raw::Call: another processor needs its own few lines here"
#endif

inline long Address(const void* p) { return reinterpret_cast<long>(p); }

int Open(int directory, const char* path, int flags, unsigned mode = 0);  // O_LARGEFILE added; EINTR retried
int Close(int fd);
int Stat(int fd, struct stat& st);
ssize_t Pread(int fd, void* buffer, std::size_t count, std::int64_t offset);   // EINTR retried
int DupFrom(int fd, int lowest);                                               // close-on-exec
int Dup3(int from, int to, int flags);                                         // EBUSY, EINTR retried
ssize_t ReadLink(const char* path, char* text, std::size_t room);
void Yield();

// Signals held off in this thread while an object of it lives, but those of its own faults.
class NoSignals {
 public:
  NoSignals();
  ~NoSignals();
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  std::uint64_t before_ = 0;
};

// Descriptors of the core (its socket, sources it reads): the application does not see them and cannot close them.
inline constexpr unsigned kWatched = 4096;
void MarkOwn(int fd, bool own);
bool IsOwn(int fd);

// Numbers of which something was noted since they were last closed: of the core, open for writing, known as a directory, a source's own file. close asks this alone for all others.
extern std::atomic<std::uint8_t> noted[kWatched];
inline constexpr std::uint8_t kNoted = 1, kOfSource = 2, kStreamOfSource = 4;  // the latter two: real_reads.h
inline void Mark(int fd, std::uint8_t mark) {
  if (static_cast<unsigned>(fd) < kWatched) noted[fd].fetch_or(mark, std::memory_order_relaxed);
}
inline void Unmark(int fd, std::uint8_t marks) {
  if (static_cast<unsigned>(fd) < kWatched && (noted[fd].load(std::memory_order_relaxed) & marks) != 0)
    noted[fd].fetch_and(static_cast<std::uint8_t>(~marks), std::memory_order_relaxed);
}
inline bool HasMark(int fd, std::uint8_t mark) { return static_cast<unsigned>(fd) < kWatched && (noted[fd].load(std::memory_order_relaxed) & mark) != 0; }
inline void Note(int fd) { Mark(fd, kNoted); }
inline bool IsPlain(int fd) {  // and not one of the standard descriptors
  return static_cast<unsigned>(fd) - 3 < kWatched - 3 && noted[fd].load(std::memory_order_relaxed) == 0;
}

}  // namespace tierd::preload::raw
