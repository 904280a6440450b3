// Read-your-writes: what this process changes below a source is told to the daemon before the call that changed it returns. What cannot be told just now (a signal
// handler on a small stack, no memory) is told before this process is served anything again.
//
// Any thread. errno is left alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_lib/preload/room.h"

namespace tierd::preload {

void TellChange(const char* path, bool recursive);
// What has changed is not known.
void TellEverything();

// Whether something is left to be told; and tells it. False: it could not be: nothing may be served.
bool AnyUntold();
bool TellUntold();

// A path whose entry (itself, as lstat) or whose target (as stat) a call changes. Empty when it is below no source: in a directory of another file system that costs one
// system call.
enum class Changes : std::uint8_t { kEntry, kTarget };
class ChangedName {
 public:
  ChangedName(int directory, const char* path, Changes what);
  explicit ChangedName(int fd);
  ~ChangedName();
  ChangedName(const ChangedName&) = delete;
  ChangedName& operator=(const ChangedName&) = delete;
  // After the change. `recursive`: everything below it too.
  void Tell(bool recursive) const;
  bool inside() const { return what_ != What::kOutside; }

 private:
  enum class What : std::uint8_t { kOutside, kNamed, kUnknown };
  What NameOfTarget(int directory, const char* path);
  What NameOfEntry(int directory, const char* path);
  What what_ = What::kOutside;
  bool is_entry_ = false;
  mutable Room name_;
};

}  // namespace tierd::preload
