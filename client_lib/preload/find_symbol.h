// Finds symbols by name, also in programs whose libc is older than the one that this library was
// built with. May allocate: at the start of the library, and not in a signal handler.
#pragma once

namespace tierd::preload {

// dlsym, also in a program that does not have it. Null if the name is not found.
void* LookUp(void* handle, const char* name);
// The next symbol of that name, or what stands in for it (older_libc.cc). Null: there is neither.
void* FindNext(const char* name);
// libc's own symbol, whichever library comes before it. Null if libc does not have it.
void* FindInLibc(const char* name);
// Whether an address is part of libc, or of the parts of it that were libraries of their own before
// glibc 2.34. True also if no libc is found.
bool IsInLibc(const void* symbol);

}  // namespace tierd::preload
