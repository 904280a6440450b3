// Read-your-writes: what this process changes below a source is told to the daemon before the call that changed it returns. Descriptors open for writing are known
// by number; a change is told when one is opened and again when it is closed, under the name the kernel has for it. While one is open here, this
// process reads that file from the source.
//
// Any thread. errno is left alone. A few system calls per change, nothing for readers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_lib/preload/raw.h"
#include "client_lib/src/target.h"

namespace tierd::preload {

// A descriptor was opened for writing by this call: if it is a file below a source, remembers it and tells.
void NoteWriter(int fd);
bool IsWriter(int fd);
// The number names the same file as `from` from now on.
void NoteCopy(int from, int to);

// Around whatever closes a number: keeps the name before, tells after.
class ClosingWriter {
 public:
  explicit ClosingWriter(int fd);
  // After the close.
  void Tell();

 private:
  bool writer_ = false;
  client::PathText name_;
};

// Whether a descriptor open for writing in this process may be that file. Almost always one load.
bool AnyWriters();
bool BeingWritten(std::uint64_t inode);

// A path whose entry (itself, as lstat) or whose target (as stat) a call changes. Empty when it is below no source.
enum class Changes : std::uint8_t { kEntry, kTarget };
class ChangedName {
 public:
  ChangedName(int directory, const char* path, Changes what);
  explicit ChangedName(int fd);
  // After the change. `recursive`: everything below it too.
  void Tell(bool recursive) const;

 private:
  bool inside_ = false;
  client::PathText name_;
};

// Descriptors that the process was started with; and before it ends.
void AdoptWriters();
void EndWriters(bool flush = true);

}  // namespace tierd::preload
