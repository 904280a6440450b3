// Wide characters of a stream: one of ours becomes libc's before the first.
#include <stdarg.h>
#include <stdio.h>
#include <wchar.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/cookie_streams.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/raw.h"
#include "client_lib/src/process.h"

using namespace tierd::preload;

TIERD_NEXT(FILE*, fopen, const char*, const char*)
TIERD_NEXT(FILE*, freopen, const char*, const char*, FILE*)
TIERD_NEXT(int, fwide, FILE*, int)
TIERD_NEXT(wint_t, fgetwc, FILE*)
TIERD_NEXT(wint_t, fgetwc_unlocked, FILE*)
TIERD_NEXT(wint_t, ungetwc, wint_t, FILE*)
TIERD_NEXT(wchar_t*, fgetws, wchar_t*, int, FILE*)
TIERD_NEXT(wchar_t*, fgetws_unlocked, wchar_t*, int, FILE*)
TIERD_NEXT(wchar_t*, __fgetws_chk, wchar_t*, size_t, int, FILE*)
TIERD_NEXT(wchar_t*, __fgetws_unlocked_chk, wchar_t*, size_t, int, FILE*)
TIERD_NEXT(int, vfwscanf, FILE*, const wchar_t*, va_list)
TIERD_NEXT(int, __isoc99_vfwscanf, FILE*, const wchar_t*, va_list)
TIERD_NEXT(int, __isoc23_vfwscanf, FILE*, const wchar_t*, va_list)  // glibc 2.38 and later: what programs compiled there call

namespace {
constinit std::atomic<FILE*> streams[kTable] = {};
constinit std::atomic<std::uint32_t> stream_count{0};
}  // namespace

void tierd::preload::NoteCookieStream(int fd, FILE* stream) {
  if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kTable)) return;
  const bool before = streams[fd].exchange(stream, std::memory_order_acq_rel) != nullptr;
  if (before != (stream != nullptr)) stream_count.fetch_add(before ? ~0u : 1u, std::memory_order_acq_rel);
}

bool tierd::preload::IsCookieStream(FILE* stream) {
  if (stream == nullptr || stream_count.load(std::memory_order_acquire) == 0) return false;
  const int fd = stream->_fileno;
  return static_cast<unsigned>(fd) < static_cast<unsigned>(kTable) && streams[fd].load(std::memory_order_acquire) == stream;
}

void tierd::preload::MakeLibcStream(FILE* stream) {
  if (!IsCookieStream(stream)) return;
  const client::KeepErrno keep;
  const int fd = stream->_fileno;
  const off64_t position = ::ftello64(stream);
  (void)Materialise(fd, Conversion::kStdio);
  NoteCookieStream(fd, nullptr);
  // What it lacks to be wide is that of another stream, which stays for that; freopen relies on it. Then it is opened anew by libc, under its number.
  FILE* const donor = Next_fopen()("/dev/null", "r");
  if (donor == nullptr) return;
  stream->_wide_data = donor->_wide_data;
  raw::Close(donor->_fileno);
  donor->_fileno = -1;
  if (Next_freopen()(nullptr, "r", stream) == nullptr) return;
  (void)::fseeko64(stream, position, SEEK_SET);
}

TIERD_EXPORT(int, fwide, FILE* stream, int mode) {
  if (mode > 0) MakeLibcStream(stream);
  return Next_fwide()(stream, mode);
}
TIERD_EXPORT(wint_t, fgetwc, FILE* stream) {
  MakeLibcStream(stream);
  return Next_fgetwc()(stream);
}
TIERD_ALIAS(wint_t, getwc, fgetwc, FILE*)
TIERD_EXPORT(wint_t, fgetwc_unlocked, FILE* stream) {
  MakeLibcStream(stream);
  return Next_fgetwc_unlocked()(stream);
}
TIERD_ALIAS(wint_t, getwc_unlocked, fgetwc_unlocked, FILE*)
TIERD_EXPORT(wint_t, ungetwc, wint_t character, FILE* stream) {
  MakeLibcStream(stream);
  return Next_ungetwc()(character, stream);
}
TIERD_EXPORT(wchar_t*, fgetws, wchar_t* text, int room, FILE* stream) {
  MakeLibcStream(stream);
  return Next_fgetws()(text, room, stream);
}
TIERD_EXPORT(wchar_t*, fgetws_unlocked, wchar_t* text, int room, FILE* stream) {
  MakeLibcStream(stream);
  return Next_fgetws_unlocked()(text, room, stream);
}
TIERD_EXPORT(wchar_t*, __fgetws_chk, wchar_t* text, size_t size, int room, FILE* stream) {
  MakeLibcStream(stream);
  return Next___fgetws_chk()(text, size, room, stream);
}
TIERD_EXPORT(wchar_t*, __fgetws_unlocked_chk, wchar_t* text, size_t size, int room, FILE* stream) {
  MakeLibcStream(stream);
  return Next___fgetws_unlocked_chk()(text, size, room, stream);
}
TIERD_EXPORT(int, vfwscanf, FILE* stream, const wchar_t* format, va_list arguments) {
  MakeLibcStream(stream);
  return Next_vfwscanf()(stream, format, arguments);
}
TIERD_EXPORT(int, __isoc99_vfwscanf, FILE* stream, const wchar_t* format, va_list arguments) {
  MakeLibcStream(stream);
  return Next___isoc99_vfwscanf()(stream, format, arguments);
}
TIERD_EXPORT(int, fwscanf, FILE* stream, const wchar_t* format, ...) {
  MakeLibcStream(stream);
  va_list arguments;
  va_start(arguments, format);
  const int result = Next_vfwscanf()(stream, format, arguments);
  va_end(arguments);
  return result;
}
TIERD_EXPORT(int, __isoc99_fwscanf, FILE* stream, const wchar_t* format, ...) {
  MakeLibcStream(stream);
  va_list arguments;
  va_start(arguments, format);
  const int result = Next___isoc99_vfwscanf()(stream, format, arguments);
  va_end(arguments);
  return result;
}
TIERD_EXPORT(int, __isoc23_vfwscanf, FILE* stream, const wchar_t* format, va_list arguments) {
  MakeLibcStream(stream);
  return Next___isoc23_vfwscanf()(stream, format, arguments);
}
TIERD_EXPORT(int, __isoc23_fwscanf, FILE* stream, const wchar_t* format, ...) {
  MakeLibcStream(stream);
  va_list arguments;
  va_start(arguments, format);
  const int result = Next___isoc23_vfwscanf()(stream, format, arguments);
  va_end(arguments);
  return result;
}
