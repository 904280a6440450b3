#include "client_lib/preload/next.h"

#include <gnu/libc-version.h>

#include <cstdlib>
#include <cstring>

#include "client_lib/preload/raw.h"
#include "client_lib/src/older_libc.h"

extern "C" {
extern tierd::preload::NextSymbol __start_tierd_next[] __attribute__((visibility("hidden")));
extern tierd::preload::NextSymbol __stop_tierd_next[] __attribute__((visibility("hidden")));
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
    if (&__register_atfork == nullptr || !GivesOldest()) return;
    open_library = reinterpret_cast<OpenFunction>(find(RTLD_NEXT, "dlopen"));
    address_of = reinterpret_cast<AddressFunction>(find(RTLD_NEXT, "dladdr"));
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

void* Find(const char* name) {
  void* found = Newest(LookUp(RTLD_NEXT, name), name);
  // __xstat and its like are there for old programs only.
  if (found == nullptr && find_version != nullptr) found = find_version(RTLD_NEXT, name, TIERD_FIRST_GLIBC);
  return found != nullptr ? found : InsteadOfNext(name);
}

}  // namespace

void* LookUp(void* handle, const char* name) {
  if (find == nullptr && libc_alone == nullptr) FindFinders();
  if (find != nullptr) return find(handle, name);
  return libc_alone != nullptr ? __libc_dlsym(libc_alone, name) : nullptr;
}

void* ResolveNext(NextSymbol& symbol) {
  symbol.address = Find(symbol.name);
  if (symbol.address == nullptr) raw::Call(SYS_exit_group, 127);
  return symbol.address;
}

void ResolveAllNext() {
  for (NextSymbol* symbol = __start_tierd_next; symbol != __stop_tierd_next; ++symbol) {
    if (symbol->address == nullptr) symbol->address = Find(symbol->name);
  }
}

}  // namespace tierd::preload
