#include "client_lib/preload/next.h"

#include <dlfcn.h>

#include "client_lib/preload/raw.h"

extern "C" {
extern tierd::preload::NextSymbol __start_tierd_next[] __attribute__((visibility("hidden")));
extern tierd::preload::NextSymbol __stop_tierd_next[] __attribute__((visibility("hidden")));
}

namespace tierd::preload {
namespace {

#if defined(__x86_64__)
constexpr const char* kFirstVersion = "GLIBC_2.2.5";
#else
constexpr const char* kFirstVersion = "GLIBC_2.17";
#endif

void* Find(const char* name) {
  if (void* const found = ::dlsym(RTLD_NEXT, name); found != nullptr) return found;
  return ::dlvsym(RTLD_NEXT, name, kFirstVersion);  // __xstat and its like are there for old programs only
}

}  // namespace

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
