// What happened to descriptors in this process, for `tierctl run`'s summary and for tests that count conversions. Relaxed adds; any thread, signal handlers too.
#pragma once

#include <atomic>
#include <cstdint>

#include "client_lib/abi/layout.h"
#include "client_lib/src/thread_state.h"

namespace tierd::preload {

// Why a descriptor of ours became a real one, in place; kFailed: it should have, and stayed ours.
enum class Conversion : std::uint32_t {
  kFork, kSpawn, kExec, kDup, kFcntl, kIoctl, kStdio, kScmRights, kAttributes, kAio, kReadFlags, kRings, kReopened, kSyscall, kChanged, kFailed, kCount
};
inline constexpr const char* kConversionNames[] = {"fork",       "spawn",      "exec", "dup",        "fcntl", "ioctl",
                                                   "stdio", "scm_rights", "attributes", "aio", "read_flags", "io_uring", "reopened", "syscall", "changed", "failed"};
static_assert(sizeof kConversionNames / sizeof *kConversionNames == static_cast<std::size_t>(Conversion::kCount));

// Why a file below a source was opened for real from the start.
using abi::RealOpen;

// What else went to the source: through descriptors of ours, and mappings of the source's own file.
enum class SourceUse : std::uint32_t { kLock, kSplice, kMmap, kIoctl, kAttributes, kCount };
inline constexpr const char* kSourceUseNames[] = {"lock", "splice", "mmap", "ioctl", "attributes"};
static_assert(sizeof kSourceUseNames / sizeof *kSourceUseNames == static_cast<std::size_t>(SourceUse::kCount));

struct Counters {
  std::atomic<std::uint64_t> opened;        // descriptors of ours
  std::atomic<std::uint64_t> stats;         // stat calls answered from the index
  std::atomic<std::uint64_t> listings;      // opendir answered from the index
  std::atomic<std::uint64_t> links;         // names that went through a link from outside (links.h)
  std::atomic<std::uint64_t> maps;          // mmap answered from the cache
  std::atomic<std::uint64_t> memory_copies; // conversions whose file was gone: a sealed copy in memory
  std::atomic<std::uint64_t> invalidations; // told to the daemon
  std::atomic<std::uint64_t> foreign_ends;  // of processes that change files without the library (foreign.h)
  std::atomic<std::uint64_t> doubts;        // of all sources at once, told to the daemon
  std::atomic<std::uint64_t> real_reads;    // through descriptors that are the source's own (real_reads.h)
  std::atomic<std::uint64_t> real_bytes;
  std::atomic<std::uint64_t> conversion[static_cast<std::size_t>(Conversion::kCount)];
  std::atomic<std::uint64_t> real_open[static_cast<std::size_t>(RealOpen::kCount)];
  std::atomic<std::uint64_t> source_use[static_cast<std::size_t>(SourceUse::kCount)];
};

extern constinit Counters counters;

inline void Count(std::atomic<std::uint64_t>& counter) { client::AddOwn(counter, 1); }
inline void Count(Conversion why) { Count(counters.conversion[static_cast<std::size_t>(why)]); }
// The session's page hears of these, too.
void Count(RealOpen why);
void Count(SourceUse why);

// Appends one line of JSON to the report file and starts counting anew. At exit, before exec, in _exit. In a child of fork: forgets what the parent counted.
void WriteReport();
// Of a process whose C library is not glibc: says that, and that nothing was served.
void ReportOtherLibc();
void ForgetCounts();

}  // namespace tierd::preload
