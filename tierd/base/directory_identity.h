// Where a directory lies, by what it is and not by what it is called: links and further mounts give
// one directory several names. No thread rule. Waits for the file system.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "tierd/base/status.h"

namespace tierd {

struct DirectoryIdentity {
  dev_t dev = 0;
  ino_t ino = 0;
  bool operator==(const DirectoryIdentity&) const = default;
};

// Of what `path` leads to; nothing where that cannot be told.
std::optional<DirectoryIdentity> IdentityOf(const std::string& path);

// Which of `roots` the open directory is, or lies below: the first one on the way up; nothing:
// none. A part of a root that is mounted elsewhere by itself (mount --bind) is not below it there.
Result<std::optional<std::size_t>> RootOf(int directory, std::span<const DirectoryIdentity> roots);

// The same for a path that need not be there yet: its nearest directory that is there counts.
Result<std::optional<std::size_t>> RootOf(const std::string& path, std::span<const DirectoryIdentity> roots);

}  // namespace tierd
