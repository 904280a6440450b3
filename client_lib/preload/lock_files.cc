#include "client_lib/preload/lock_files.h"

#include <limits.h>

#include <cstring>

#include "client_lib/preload/changes.h"
#include "client_lib/preload/room.h"

namespace tierd::preload {
namespace {

bool EndsWith(const char* path, std::size_t bytes, const char* end, std::size_t end_bytes) {
  return bytes >= end_bytes && std::memcmp(path + bytes - end_bytes, end, end_bytes) == 0;
}

}  // namespace

void NoteLockFile(int directory, const char* path) {
  constexpr char kOfDirectory[] = "lock.mdb", kData[] = "data.mdb", kSuffix[] = "-lock";
  constexpr std::size_t kOfDirectoryBytes = sizeof kOfDirectory - 1, kSuffixBytes = sizeof kSuffix - 1;
  static_assert(sizeof kData == sizeof kOfDirectory);
  const std::size_t bytes = std::strlen(path);
  const bool of_directory = EndsWith(path, bytes, kOfDirectory, kOfDirectoryBytes) && (bytes == kOfDirectoryBytes || path[bytes - kOfDirectoryBytes - 1] == '/');
  if ((!of_directory && !EndsWith(path, bytes, kSuffix, kSuffixBytes)) || bytes >= PATH_MAX) return;
  Room room;
  client::PathText* const name = room.Get();
  if (name == nullptr) return TellEverything();  // nothing is served any more
  std::memcpy(name->text, path, bytes + 1);
  if (of_directory) std::memcpy(name->text + bytes - kOfDirectoryBytes, kData, kOfDirectoryBytes);
  else name->text[bytes - kSuffixBytes] = '\0';
  ReadFromSource({directory, name->text}, Changes::kTarget);
}

}  // namespace tierd::preload
