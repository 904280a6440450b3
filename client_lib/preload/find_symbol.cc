#include "client_lib/preload/find_symbol.h"

#include <gnu/libc-version.h>
#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
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
constinit OpenFunction open_library = nullptr;

bool GivesOldest() {
  const auto version_of = reinterpret_cast<const char* (*)()>(LookUp(RTLD_DEFAULT, "gnu_get_libc_version"));
  const char* const version = version_of != nullptr ? version_of() : "";
  return std::strncmp(version, "2.", 2) == 0 && std::atoi(version + 2) < 36;
}

void* Newest(void* found, const char* name) {
  if (found == nullptr || address_of == nullptr || open_library == nullptr) return found;
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
    if (&__register_atfork != nullptr && GivesOldest()) address_of = reinterpret_cast<AddressFunction>(find(RTLD_NEXT, "dladdr"));
    return;
  }
  if (&__libc_dlopen_mode == nullptr || &__libc_dlsym == nullptr) return;
  if (void* const library = __libc_dlopen_mode("libdl.so.2", kMode); library != nullptr) {
    find_version = reinterpret_cast<FindVersionFunction>(__libc_dlsym(library, "dlvsym"));
    find = reinterpret_cast<FindFunction>(__libc_dlsym(library, "dlsym"));
    open_library = reinterpret_cast<OpenFunction>(__libc_dlsym(library, "dlopen"));
    address_of = reinterpret_cast<AddressFunction>(__libc_dlsym(library, "dladdr"));
  } else {
    libc_alone = __libc_dlopen_mode("libc.so.6", kMode);
  }
}

// libc and, before glibc 2.34, the parts of it that were libraries of their own.
constexpr const char* kLibc[] = {"libc.so.", "libc-", "libpthread", "librt", "libdl", "ld-"};
constexpr int kParts = 8;

struct Part {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
struct Parts {
  int count = 0;
  Part part[kParts] = {};
};
constinit Parts libc_parts;
constinit std::atomic<bool> libc_found{false};

bool IsOfLibc(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  const char* const file = slash != nullptr ? slash + 1 : path;
  for (const char* name : kLibc) {
    if (std::strncmp(file, name, std::strlen(name)) == 0) return true;
  }
  return false;
}

int AddPart(dl_phdr_info* info, std::size_t, void* parts) {
  auto& found = *static_cast<Parts*>(parts);
  if (!IsOfLibc(info->dlpi_name)) return 0;
  Part part{~std::uintptr_t{0}, 0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (begin < part.begin) part.begin = begin;
    if (begin + segment.p_memsz > part.end) part.end = begin + segment.p_memsz;
  }
  found.part[found.count++] = part;
  return found.count == kParts ? 1 : 0;
}

// Threads that come here at the same time find the same.
void FindLibc() {
  if (libc_found.load(std::memory_order_acquire)) return;
  Parts parts;
  ::dl_iterate_phdr(&AddPart, &parts);
  libc_parts = parts;
  libc_found.store(true, std::memory_order_release);
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

bool IsInLibc(const void* symbol) {
  FindLibc();
  const auto address = reinterpret_cast<std::uintptr_t>(symbol);
  for (int i = 0; i < libc_parts.count; ++i) {
    if (address >= libc_parts.part[i].begin && address < libc_parts.part[i].end) return true;
  }
  return libc_parts.count == 0;
}

void* FindInLibc(const char* name) {
  void* const libc = open_library != nullptr ? open_library("libc.so.6", RTLD_LAZY | RTLD_NOLOAD) : libc_alone;
  if (libc == nullptr) return nullptr;
  void* const found = LookUp(libc, name);
  return found == nullptr && find_version != nullptr ? find_version(libc, name, TIERD_FIRST_GLIBC) : found;
}

}  // namespace tierd::preload
