// How a wrapper is written: the symbol that it exports, and the next one of that name (libc's, or that of another preload behind us), to which everything goes that
// is not ours.
//
//   TIERD_NEXT(int, dup, int)
//   TIERD_EXPORT(int, dup, int fd) { ...; return Next_dup()(fd); }
//
// The exported symbol is named by an assembler label: libc's headers redirect and declare these names in too many ways to define them under their own.
// All next symbols are resolved when the library starts (dlsym is nothing for a signal handler); a wrapper called earlier resolves its own.
#pragma once

namespace tierd::preload {

struct alignas(16) NextSymbol {
  const char* name;
  void* address;
};

// The address of the next symbol of that name; ends the process when there is none, nor anything in its place, as the dynamic linker would have done.
void* ResolveNext(NextSymbol& symbol);
// All of them; a name that this libc does not have stays unresolved.
void ResolveAllNext();
// dlsym, also in a program that does not have it. Null where the name is not found.
void* LookUp(void* handle, const char* name);
// What stands in for a function that this libc does not have (older_libc.cc); null: nothing.
void* InsteadOfNext(const char* name);

}  // namespace tierd::preload

#define TIERD_NEXT(ret, name, ...)                                                                                        \
  namespace {                                                                                                             \
  __attribute__((section("tierd_next"), used)) constinit tierd::preload::NextSymbol next_##name{#name, nullptr};          \
  inline auto Next_##name() {                                                                                             \
    void* address = next_##name.address;                                                                                  \
    if (address == nullptr) [[unlikely]] address = tierd::preload::ResolveNext(next_##name);                              \
    return reinterpret_cast<ret (*)(__VA_ARGS__)>(address);                                                               \
  }                                                                                                                       \
  }

#define TIERD_EXPORT(ret, name, ...)                                                                                      \
  extern "C" __attribute__((visibility("default"))) ret Exported_##name(__VA_ARGS__) __asm__(#name);                      \
  extern "C" ret Exported_##name(__VA_ARGS__)

// A second name of an exported symbol, defined in the same file: open64 is open where off_t has 64 bits anyway.
#define TIERD_ALIAS(ret, alias_name, name, ...)                                                                           \
  extern "C" __attribute__((visibility("default"), alias(#name))) ret Exported_##alias_name(__VA_ARGS__) __asm__(#alias_name);
