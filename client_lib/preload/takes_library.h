// Whether a program that is about to be executed will load this library, as far as its file and its
// environment say. Static programs, Go, another C library or processor, set-user-id and file
// capabilities do not. Any thread, a vfork child too; errno is left alone.
#pragma once

namespace tierd::preload {

// Reads the beginning of the file: some six system calls. False also where that cannot be known.
bool TakesLibrary(int directory, const char* path, char* const* environment);
// The same of a name that is searched for in PATH.
bool FoundTakesLibrary(const char* file, char* const* environment);

}  // namespace tierd::preload
