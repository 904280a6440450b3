#include "client_lib/preload/find_symbol.h"

#include <gnu/libc-version.h>
#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "client_lib/preload/next.h"
#include "client_lib/src/older_libc.h"

extern "C" {
// The loader of glibc before 2.34, inside libc: it opens libdl in a program that does not have it.
void* __libc_dlopen_mode(const char* name, int mode) __attribute__((weak));
void* __libc_dlsym(void* library, const char* name) __attribute__((weak));
}

namespace tierd::preload {
namespace {

using FindFunction = void* (*)(void*, const char*);
using FindVersionFunction = void* (*)(void*, const char*, const char*);
using AddressFunction = int (*)(const void*, Dl_info*);
using OpenFunction = void* (*)(const char*, int);

constinit FindFunction find = nullptr;
constinit FindVersionFunction find_version = nullptr;
constinit void* libc_alone = nullptr;  // where there is no libdl at all: libc's own symbols, whoever comes before it
// glibc before 2.36 gives a name's oldest version to RTLD_NEXT, hidden ones too (realpath that
// takes no null pointer, calls of libattr that are for old programs): these say which library it is
// from, and that one is asked for the newest.
constinit AddressFunction address_of = nullptr;
constinit bool gives_oldest = false;
constinit OpenFunction open_library = nullptr;

// Not by atoi, which AddressSanitizer hooks too (see IsInLibc).
bool GivesOldest() {
  const auto version_of = reinterpret_cast<const char* (*)()>(LookUp(RTLD_DEFAULT, "gnu_get_libc_version"));
  const char* const version = version_of != nullptr ? version_of() : "";
  if (std::strncmp(version, "2.", 2) != 0) return false;
  int minor = 0;
  for (const char* digit = version + 2; *digit >= '0' && *digit <= '9'; ++digit) minor = minor * 10 + (*digit - '0');
  return minor < 36;
}

void* Newest(void* found, const char* name) {
  if (!gives_oldest || found == nullptr || address_of == nullptr || open_library == nullptr) return found;
  static constinit void* base = nullptr;  // of the last library: nearly all are of libc
  static constinit void* library = nullptr;
  Dl_info info{};
  if (address_of(found, &info) == 0 || info.dli_fname == nullptr) return found;
  if (info.dli_fbase != base) {
    base = info.dli_fbase;
    library = open_library(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }
  void* const newest = library != nullptr ? find(library, name) : nullptr;
  return newest != nullptr ? newest : found;
}

void FindFinders() {
  constexpr int kMode = RTLD_NOW | static_cast<int>(0x80000000);  // __RTLD_DLOPEN
  if (&::dlsym != nullptr) {
    find_version = &::dlvsym;
    find = &::dlsym;
    open_library = reinterpret_cast<OpenFunction>(find(RTLD_NEXT, "dlopen"));
    address_of = reinterpret_cast<AddressFunction>(find(RTLD_NEXT, "dladdr"));
    gives_oldest = &__register_atfork != nullptr && GivesOldest();
    return;
  }
  if (&__libc_dlopen_mode == nullptr || &__libc_dlsym == nullptr) return;
  if (void* const library = __libc_dlopen_mode("libdl.so.2", kMode); library != nullptr) {
    find_version = reinterpret_cast<FindVersionFunction>(__libc_dlsym(library, "dlvsym"));
    find = reinterpret_cast<FindFunction>(__libc_dlsym(library, "dlsym"));
    open_library = reinterpret_cast<OpenFunction>(__libc_dlsym(library, "dlopen"));
    address_of = reinterpret_cast<AddressFunction>(__libc_dlsym(library, "dladdr"));
    gives_oldest = true;
  } else {
    libc_alone = __libc_dlopen_mode("libc.so.6", kMode);
  }
}

// libc and, before glibc 2.34, the parts of it that were libraries of their own.
constexpr const char* kLibc[] = {"libc.so.", "libc-", "libpthread", "librt", "libdl", "ld-"};
constexpr unsigned kParts = 8;

// Where they lie, as far as they have been met. A part counts from the moment on that `end` is stored.
struct Part {
  std::atomic<std::uintptr_t> begin;
  std::atomic<std::uintptr_t> end;
};
constinit Part libc_parts[kParts] = {};
constinit std::atomic<unsigned> libc_count{0};

bool IsNameOfLibc(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  const char* const file = slash != nullptr ? slash + 1 : path;
  for (const char* name : kLibc) {
    if (std::strncmp(file, name, std::strlen(name)) == 0) return true;
  }
  return false;
}

// By the program headers of the library that begins there.
std::uintptr_t EndOf(const void* base) {
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  const auto* const header = static_cast<const ElfW(Ehdr)*>(base);
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(begin + header->e_phoff);
  std::uintptr_t end = begin;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    const std::uintptr_t up_to = begin + segments[i].p_vaddr + segments[i].p_memsz;
    if (segments[i].p_type == PT_LOAD && up_to > end) end = up_to;
  }
  return end;
}

}  // namespace

void* LookUp(void* handle, const char* name) {
  if (find == nullptr && libc_alone == nullptr) FindFinders();
  if (find != nullptr) return find(handle, name);
  return libc_alone != nullptr ? __libc_dlsym(libc_alone, name) : nullptr;
}

void* FindNext(const char* name) {
  void* found = Newest(LookUp(RTLD_NEXT, name), name);
  // __xstat and its like are there for old programs only.
  if (found == nullptr && find_version != nullptr) found = find_version(RTLD_NEXT, name, TIERD_FIRST_GLIBC);
  return found != nullptr ? found : InsteadOfNext(name);
}

// Not by dl_iterate_phdr: AddressSanitizer hooks it, and ends a process that calls it while the
// sanitizer itself starts.
bool IsInLibc(const void* symbol) {
  const auto address = reinterpret_cast<std::uintptr_t>(symbol);
  for (const Part& part : libc_parts) {
    const std::uintptr_t end = part.end.load(std::memory_order_acquire);
    if (address < end && address >= part.begin.load(std::memory_order_relaxed)) return true;
  }
  Dl_info info{};
  if (address_of == nullptr || address_of(symbol, &info) == 0 || info.dli_fname == nullptr) return true;
  if (!IsNameOfLibc(info.dli_fname)) return false;
  if (const unsigned at = libc_count.fetch_add(1, std::memory_order_relaxed); at < kParts) {
    libc_parts[at].begin.store(reinterpret_cast<std::uintptr_t>(info.dli_fbase), std::memory_order_relaxed);
    libc_parts[at].end.store(EndOf(info.dli_fbase), std::memory_order_release);
  }
  return true;
}

void* FindInLibc(const char* name) {
  void* const libc = open_library != nullptr ? open_library("libc.so.6", RTLD_LAZY | RTLD_NOLOAD) : libc_alone;
  if (libc == nullptr) return nullptr;
  void* const found = LookUp(libc, name);
  return found == nullptr && find_version != nullptr ? find_version(libc, name, TIERD_FIRST_GLIBC) : found;
}

}  // namespace tierd::preload
