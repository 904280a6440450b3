// The names that a file which has changed may be cached by: the daemon knows it by the one that goes through no link, whatever name it was told of.
//
// Any thread. Keeps nothing.
#pragma once

#include <cstddef>

#include "client_lib/src/target.h"

namespace tierd::client {

struct Spellings {
  static constexpr std::size_t kMost = 3;
  PathText text[kMost];
  std::size_t bytes[kMost];
  std::size_t count;
};

// `path` as it stands, if it is canonical then. With `ask_kernel` also, where they are others, the kernel's names of what it leads to now, and of its last
// component in its directory: what is gone, or is a link itself. Up to seven system calls, at the source. None: it cannot be told of.
void FindSpellings(const char* path, bool ask_kernel, Spellings& found);

// The kernel's name of the directory that `directory` leads to now; its length, 0: it has none. Three system calls.
std::size_t KernelNameOf(const char* directory, PathText& name);

}  // namespace tierd::client
