// Mappings of cached files. A mapping is put together over memory that the kernel reserved for it: whole pages of leased frames are mapped there a second time; the
// page that the file ends in, and files whose frame is not page-aligned, are a file in memory with the same bytes, so that no byte of a neighbour is ever seen
// (HAZARDS 2.9) and the kernel treats it as it treats any mapping of a file (madvise, mprotect).
//
// It shows what the file was at its open, whatever other processes write: it is a snapshot. What this process writes it shows, as any mapping does: before this process begins to change the file, its mappings
// of frames, and shared ones of such files in memory, become mappings of the source's file in place. Private ones of files in memory stay: they may have been written to.
// Any thread. When the table of mappings (mapped_frames.h) is full, mappings are the source's.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "client_lib/preload/descriptors.h"
#include "client_lib/preload/mapped_frames.h"

namespace tierd::preload {

struct MapRequest {
  void* address;
  std::size_t length;
  int protection;
  int flags;
  std::uint64_t offset;
};

// The mapping, or null: map the source instead.
void* MapCached(Description& description, const MapRequest& request);

// A call is about to do to mappings of ours what frames do not allow: to move or to lengthen them, or to protect them otherwise than they were made. They become mappings of
// the source's file, whole, in place: what comes then is as of any file. Has the file another version by now: these addresses become copies of what they showed, which
// cannot grow (ShowsFrames). What can be neither stays, and the kernel refuses.
void ReplaceFrames(AddressRange where, FileCopies copies);
void ReplaceProtectedFrames(AddressRange where, int protection);

// This process is about to change that file, or has opened it for writing by `at` (-1: by no number): its mappings become the source's, if that has their version still. Else they stay what they are, for good
// (counted: Conversion::kFailed). Inodes of several sources may be of one number: one too many is only slower.
void ReplaceFramesOf(std::uint64_t inode, int at);
// The same before a name is opened with O_TRUNC.
void ReplaceFramesAt(int directory, const char* path);
inline void BeforeTruncating(int directory, const char* path) {
  if (AnyMappings() && path != nullptr) [[unlikely]] ReplaceFramesAt(directory, path);
}

}  // namespace tierd::preload
