// Opens, reads and describes files of the cache for the wrappers. Errors are negative errnos; errno is left alone. Any thread.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "client_lib/preload/descriptors.h"

namespace tierd::preload {

// Why a file is opened for real, counted when there turns out to be one.
struct NotServed {
  RealOpen why = RealOpen::kCount;  // kCount: nothing to count
  abi::Fallback reason = abi::Fallback::kNone;
};
void CountNotServed(const NotServed& not_served);

// A descriptor of ours for the canonical `path`, or -1: the caller opens the file itself.
int OpenCached(const char* path, int flags, NotServed& not_served);

// Up to `count` bytes at `offset`: fewer only at the end of the file. -ESTALE: the file has been written to and what is asked for is nowhere any more as it was at
// the open: the caller converts the descriptor and lets the kernel read on, as it would have all along.
ssize_t ReadCached(Description& description, void* buffer, std::size_t count, std::uint64_t offset);

// Whether some file has changed, by what the daemon says, since it was last looked whether this one has. Two loads and a comparison.
inline bool MayHaveChanged(const Description& description) {
  return description.changes.load(std::memory_order_relaxed)->load(std::memory_order_acquire) != description.seen_changes.load(std::memory_order_relaxed);
}
// Whether the same inode has been written to since the open, so that no more may be read of what was there. The index answers where it can, else the source. False for a file
// that was replaced or unlinked: its descriptors keep it.
bool HasChanged(Description& description);
// The source has just shown that to the application: descriptors of this inode with another version are looked at before their next read.
void NoteShown(const struct stat& st);

// Whether the file behind a descriptor that has been open for a while has been written to, at the question of who asks for its size or has come to its end (tail -f): then
// it is converted and shows what there is by now. A look at the source, at most once a second.
bool HasGrown(Description& description);

// Counts bytes of a leased piece that were read some other way.
void CountPieceRead(Description& description, std::uint64_t bytes);

// What fstat shows. st_blocks is what the size takes in 4 KiB blocks: the cache does not know it; st_atime what it was when the source was last asked.
void StatOfFacts(const client::FileFacts& facts, std::uint64_t dev, struct stat& st);
inline void StatCached(const Description& description, struct stat& st) { StatOfFacts(description.facts, description.dev, st); }

// stat or lstat of a canonical path from the index, asking the daemon if need be; false: ask the source.
bool StatPath(const char* path, bool follow, struct stat& st);

// The source's file by the path of a description, whichever that is by now: a descriptor, the caller's, or -errno. A low number: for what lasts as long as the file is open,
// which is short, two more calls to be out of the way are not worth it.
int OpenSourceFile(const char* path);
enum class SourceVersion { kOpened, kLater, kOtherFile };
SourceVersion VersionBehind(const client::FileFacts& opened, int source);
// A descriptor of the source file behind the description, of the same version, for what only that can do; -errno, or -ESTALE when that version is gone.
int SourceOf(Description& description, SourceUse use);

}  // namespace tierd::preload
