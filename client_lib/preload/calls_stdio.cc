// stdio. libc's streams call its own read and close, which nobody sees: one of a descriptor of ours reads through a cookie. Its `_fileno` is set so that fileno(), and
// what programs do with it, works (NumPy's fromfile: dup, fdopen, fread, fclose; freopen; std::ifstream, which reads by number). Such a stream has no wide characters:
// before the first it becomes one of libc's (calls_wide.cc).
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/cookie_streams.h"
#include "client_lib/preload/mappings.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/memory_copies.h"
#include "client_lib/preload/own_numbers.h"
#include "client_lib/preload/paths.h"
#include "client_lib/preload/real_reads.h"
#include "client_lib/preload/reopened.h"
#include "client_lib/preload/writers.h"

using namespace tierd::preload;

TIERD_NEXT(FILE*, fopen, const char*, const char*)
TIERD_NEXT(FILE*, fdopen, int, const char*)
TIERD_NEXT(FILE*, freopen, const char*, const char*, FILE*)
TIERD_NEXT(int, fclose, FILE*)
TIERD_NEXT(int, mkstemp, char*)
TIERD_NEXT(int, mkostemp, char*, int)
TIERD_NEXT(int, mkstemps, char*, int)
TIERD_NEXT(int, mkostemps, char*, int, int)

namespace {

// Loops, no calls of libc: those are indirect ones, which a processor has forgotten at the last system call, and most streams are none of ours.
inline bool Has(const char* mode, char letter) {
  while (*mode != '\0' && *mode != letter) ++mode;
  return *mode == letter;
}
inline bool ModeTruncates(const char* mode) { return mode != nullptr && mode[0] == 'w'; }
inline bool ModeWrites(const char* mode) { return mode != nullptr && (mode[0] != 'r' || Has(mode, '+')); }

int NumberOf(FILE* stream) {
  const tierd::client::KeepErrno keep;
  return ::fileno(stream);
}

FILE* AfterOpen(FILE* stream, const char* mode) {
  if (stream == nullptr || !Active()) return stream;
  const int fd = stream->_fileno;  // it has just been opened
  NewNumber(fd);
  if (!ModeWrites(mode)) return stream;
  const tierd::client::KeepErrno keep;
  NoteWriter(fd);
  NoteStream(fd, stream);
  return stream;
}

// ---- streams over our descriptors; the cookie is the number ------------------------------------------------------------------

int NumberIn(void* cookie) { return static_cast<int>(reinterpret_cast<long>(cookie)); }

ssize_t CookieRead(void* cookie, char* buffer, size_t count) { return ::read(NumberIn(cookie), buffer, count); }

int CookieSeek(void* cookie, off64_t* position, int whence) {
  const off64_t at = ::lseek64(NumberIn(cookie), *position, whence);
  if (at < 0) return -1;
  *position = at;
  return 0;
}

int CookieClose(void* cookie) {
  NoteCookieStream(NumberIn(cookie), nullptr);
  return CloseAny(NumberIn(cookie));
}

// Whether a stream of that mode reads bytes and nothing else; and the flags that open takes for it.
bool ReadsBytes(const char* mode, int* flags) {
  if (mode == nullptr || mode[0] != 'r') return false;
  for (const char* letter = mode + 1; *letter != '\0'; ++letter) {
    if (!Has("bcem", *letter)) return false;
  }
  *flags = O_RDONLY | (Has(mode, 'e') ? O_CLOEXEC : 0);
  return true;
}

constexpr int kCloseOnExec = 64;  // glibc's _IO_FLAGS2_CLOEXEC: what freopen opens next is to be closed by exec, too

FILE* StreamOfOurs(int fd, const char* mode) {
  if (mode == nullptr || ModeWrites(mode)) {
    errno = EINVAL;  // as libc says of a mode that the descriptor does not allow
    return nullptr;
  }
  FILE* const stream = ::fopencookie(reinterpret_cast<void*>(static_cast<long>(fd)), "r", {&CookieRead, nullptr, &CookieSeek, &CookieClose});
  if (stream == nullptr) return nullptr;
  stream->_fileno = fd;  // a field that libc itself leaves alone in such a stream
  NoteCookieStream(fd, stream);
  return stream;
}

}  // namespace

namespace {

__attribute__((noinline)) FILE* OpenOther(const char* path, const char* mode) {
  RealIfNamed(path);
  if (ModeTruncates(mode) && Active()) BeforeTruncating(AT_FDCWD, path);
  int flags;
  bool of_source = false;
  if (ReadsBytes(mode, &flags)) {
    if (const int fd = OpenOurs(path, flags, &of_source); fd >= 0) {
      if (FILE* const ours = StreamOfOurs(fd, mode); ours != nullptr) {
        if ((flags & O_CLOEXEC) != 0) ours->_flags2 |= kCloseOnExec;
        return ours;
      }
      CloseAny(fd);
    }
  } else if (Active() && path != nullptr && !ModeWrites(mode) && MayBeInside(AT_FDCWD, path)) {
    Count(RealOpen::kStdio);
    of_source = true;
  }
  FILE* const stream = Active() ? WithAllNumbers([=] { return Next_fopen()(path, mode); }) : Next_fopen()(path, mode);
  if (stream != nullptr && Active() && !ModeWrites(mode) && IsWorthALook(path)) [[unlikely]] LearnLink(path, NumberOf(stream));
  AfterOpen(stream, mode);
  if (stream != nullptr && of_source) MarkSourceStream(stream->_fileno);
  return stream;
}

}  // namespace

// As open: of a file outside that is read only the number is looked at.
TIERD_EXPORT(FILE*, fopen, const char* path, const char* mode) {
  if (!Active() || mode == nullptr || ModeWrites(mode) || NameOf(AT_FDCWD, path) != Name::kOutside || !MayPass()) [[unlikely]] return OpenOther(path, mode);
  FILE* const stream = WithAllNumbers([=] { return Next_fopen()(path, mode); });
  if (stream != nullptr) NewNumber(stream->_fileno);
  return stream;
}
TIERD_ALIAS(FILE*, fopen64, fopen, const char*, const char*)

TIERD_EXPORT(FILE*, fdopen, int fd, const char* mode) {
  if (Emulate(fd)) return StreamOfOurs(fd, mode);
  FILE* const stream = Next_fdopen()(fd, mode);
  if (stream != nullptr && ModeWrites(mode)) NoteStream(fd, stream);
  if (stream != nullptr && ReadsSource(fd)) MarkSourceStream(fd);
  return stream;
}

TIERD_EXPORT(FILE*, freopen, const char* path, const char* mode, FILE* stream) {
  if (!Active()) return Next_freopen()(path, mode, stream);
  RealIfNamed(path);
  if (ModeTruncates(mode)) BeforeTruncating(AT_FDCWD, path);
  const int fd = NumberOf(stream);
  MakeLibcStream(stream);
  if (fd >= 0 && IsOurs(fd)) (void)Materialise(fd, Conversion::kStdio);
  ClosingWriter closing(fd);
  EndLocks(fd);
  CountSourceStream(fd);
  ForgetSourceFile(fd);
  const bool of_source = path != nullptr && !ModeWrites(mode) && MayBeInside(AT_FDCWD, path);
  FILE* const reopened = Next_freopen()(path, mode, stream);
  closing.Tell();
  if (fd >= 0 && fd < 3) process.standard_free.store(true, std::memory_order_relaxed);
  AfterOpen(reopened, mode);
  if (reopened != nullptr && of_source) {
    Count(RealOpen::kStdio);
    MarkSourceStream(reopened->_fileno);
  }
  return reopened;
}
TIERD_ALIAS(FILE*, freopen64, freopen, const char*, const char*, FILE*)

TIERD_EXPORT(int, fclose, FILE* stream) {
  if (!Active() || stream == nullptr || raw::IsPlain(stream->_fileno)) return Next_fclose()(stream);  // as close does; a stream that is no file may have any number there, or none
  const int fd = NumberOf(stream);
  ClosingWriter closing(fd);
  EndLocks(fd);
  ForgetCopy(fd);
  CountSourceStream(fd);
  ForgetSourceFile(fd);
  const int result = Next_fclose()(stream);
  closing.Tell();
  ForgetDirectory(fd);
  if (fd >= 0 && fd < 3) process.standard_free.store(true, std::memory_order_relaxed);
  return result;
}

namespace {

// libc has written a name into the pattern by the time that it finds no number for the file.
template <typename Make>
int MakeNamed(char* pattern, int suffix, Make make) {
  if (!Active()) return make();
  const int fd = WithAllNumbers([=] {
    const int made = make();
    if (made < 0 && errno == EMFILE) std::memset(pattern + std::strlen(pattern) - suffix - 6, 'X', 6);
    return made;
  });
  if (fd < 0) return fd;
  const tierd::client::KeepErrno keep;
  NewNumber(fd);
  NoteWriter(fd);
  return fd;
}

}  // namespace

TIERD_EXPORT(int, mkstemp, char* pattern) { return MakeNamed(pattern, 0, [=] { return Next_mkstemp()(pattern); }); }
TIERD_ALIAS(int, mkstemp64, mkstemp, char*)
TIERD_EXPORT(int, mkostemp, char* pattern, int flags) { return MakeNamed(pattern, 0, [=] { return Next_mkostemp()(pattern, flags); }); }
TIERD_ALIAS(int, mkostemp64, mkostemp, char*, int)
TIERD_EXPORT(int, mkstemps, char* pattern, int suffix) { return MakeNamed(pattern, suffix, [=] { return Next_mkstemps()(pattern, suffix); }); }
TIERD_ALIAS(int, mkstemps64, mkstemps, char*, int)
TIERD_EXPORT(int, mkostemps, char* pattern, int suffix, int flags) { return MakeNamed(pattern, suffix, [=] { return Next_mkostemps()(pattern, suffix, flags); }); }
TIERD_ALIAS(int, mkostemps64, mkostemps, char*, int, int)
