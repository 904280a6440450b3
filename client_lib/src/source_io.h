// Reading the source directly, with the caller's own credentials: what open, fstat and read give. Errors are negative errnos.
// Pure functions over descriptors; any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "client_lib/src/index_view.h"
#include "tier/tier.h"

namespace tierd::client {

// A regular file of the source, open for reading. fd or -errno: -EISDIR for a directory, -EINVAL for other things. `attr` as of the open.
int OpenSourceFile(const char* path, tier_attr& attr);
// stat or lstat.
int StatSource(const char* path, bool follow, tier_attr& attr);
// fstat.
int StatDescriptor(int fd, tier_attr& attr);
// Up to `count` bytes: fewer only at the end of the file.
ssize_t ReadSource(int fd, void* buffer, std::size_t count, std::int64_t offset);

// Fields of tier_attr, whatever its caller's `size` was.
void AttrFromFacts(const FileFacts& facts, std::uint64_t dev, tier_attr& attr);
FileFacts FactsFromAttr(const tier_attr& attr);
// Copies what the caller's struct (its size set) has room for. -EINVAL: no room for anything.
int GiveAttr(const tier_attr& attr, tier_attr* to);

}  // namespace tierd::client
