// Descriptors that this process has open for writing below a source. Read-your-writes: what they change is told to the daemon when one is opened and again when it is
// closed, under the name the kernel has for it; while one is open here, this process reads that file from the source. Descriptors of ours that are open of it become real.
//
// Known by number: the bit says that it is one, the word beside it which file; beyond the numbers that are watched (4,096) the kernel is asked when one is closed. Any thread. errno is left alone. Nothing for readers.
#pragma once

#include <stdio.h>

#include <cstddef>
#include <cstdint>

#include "client_lib/preload/raw.h"
#include "client_lib/preload/room.h"

namespace tierd::preload {

// A descriptor was opened for writing by this call: if it is a file below a source, remembers it and tells.
void NoteWriter(int fd);
bool IsWriter(int fd);
// The same, and those that may be one with a number that is not watched: open for writing, of whatever file. From there on to the highest that there was; 0: there was none.
bool MayBeWriter(int fd);
int HighestWriterBeyond();
// A number that names another file by now.
void ForgetWriter(int fd);
// The number names the same file as `from` from now on.
void NoteCopy(int from, int to);
// A stream that buffers what is written to the number; null: it is closed.
void NoteStream(int fd, FILE* stream);

// Around whatever closes a number: keeps the name before, tells after. Of a writer that is no cancellation point: what is not told would be lost.
class ClosingWriter {
 public:
  explicit ClosingWriter(int fd);
  ~ClosingWriter();
  ClosingWriter(const ClosingWriter&) = delete;
  ClosingWriter& operator=(const ClosingWriter&) = delete;
  // After the close.
  void Tell();
  // The number is what it was.
  void Undo();

 private:
  const int fd_;
  bool held_ = false;
  bool writer_ = false;
  int cancel_state_ = 0;
  std::uint64_t inode_ = 0;
  Room name_;
};

// This process has changed a file by one of several names, or taken that one away: what the cache has of the others is of before. Who they are, nobody knows: all of them
// are read from the source from now on. So is a file that it watches.
void NoteOtherNames(std::uint64_t inode);

// This process watches a directory (inotify): its listing, and what lies directly in it, are read from the source from now on, so that whoever is told of a change sees it.
// The latest 1,024.
void NoteWatchedDirectory(const char* path);
bool IsWatchedDirectory(const char* path);
bool IsInWatchedDirectory(const char* path);

// Whether that file may be open for writing in this process, or changed under another name. Almost always one load.
bool AnyWriters();
bool BeingWritten(std::uint64_t inode);

// Descriptors that the process was started with; those that an exec is about to close; all; all, before the process ends, with what their streams have buffered.
void AdoptWriters();
void TellClosedByExec();
void TellWriters();
enum class Streams { kFlush, kLeave };
void EndWriters(Streams streams);

}  // namespace tierd::preload
