// What this library refers to by its oldest name, so that it loads into programs whose glibc is
// older than the one it was built with (2.17 and later: tests/preload/versions_test.py), and what
// such a glibc, or another libc, may not have at all. The latter are weak: null where they are
// missing.
//
// Included before the first use in every file that refers to one of them.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

// The first version of every symbol of glibc on this processor.
#if defined(__x86_64__)
#define TIERD_FIRST_GLIBC "GLIBC_2.2.5"
#else
#define TIERD_FIRST_GLIBC "GLIBC_2.17"
#endif
#define TIERD_OLDEST(name) __asm__(".symver " #name ", " #name "@" TIERD_FIRST_GLIBC)

extern "C" {
// In libdl before glibc 2.34, which not every program loads.
void* dlsym(void* __restrict handle, const char* __restrict name) noexcept __attribute__((weak));
void* dlvsym(void* __restrict handle, const char* __restrict name, const char* __restrict version) noexcept
    __attribute__((weak));
// In libpthread before glibc 2.34.
void pthread_testcancel() __attribute__((weak));
// Of glibc alone. What pthread_atfork calls there, with the library that the handlers belong to.
int __register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void* library) noexcept
    __attribute__((weak));
extern void* __dso_handle __attribute__((visibility("hidden")));
}

TIERD_OLDEST(dlsym);
TIERD_OLDEST(dlvsym);
TIERD_OLDEST(pthread_testcancel);

namespace tierd::client {

// pthread_atfork, and nothing where libc has no such handlers.
inline void CallAtFork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  if (&__register_atfork != nullptr) (void)__register_atfork(before, in_parent, in_child, &__dso_handle);
}

// pthread_testcancel. Where libpthread is not loaded from the start, a change of the kind of
// cancellation, which libc itself passes on, acts on one that is pending, too.
inline void TestCancel() {
  if (&::pthread_testcancel != nullptr) [[likely]] return ::pthread_testcancel();
  int kind;
  if (::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &kind) == 0) (void)::pthread_setcanceltype(kind, nullptr);
}

}  // namespace tierd::client
