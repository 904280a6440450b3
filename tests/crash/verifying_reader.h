// A reader that knows what every file must hold, and a tally of what it met: for runs in which daemons die under it.
//
// Each reader also rewrites files of its own (those whose number is its own modulo the number of readers) and then must see its own bytes at once;
// those of the others may be as old as the staleness bound.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/e2e/reading.h"

namespace tierd::e2e {

inline constexpr int kCrashFiles = 420;  // 40 MB: two and a half times the smallest RAM tier
inline constexpr int kCrashReaders = 2;
inline constexpr int kCrashTtlMs = 2000;

// Shared by the processes; in a mapping that starts as zeroes.
struct Tally {
  std::atomic<std::uint64_t> reads[TIER_FROM_BYPASS + 1];
  std::atomic<std::uint64_t> wrong;
  std::atomic<std::uint64_t> failed;
  std::atomic<std::uint64_t> slow;       // took longer than 1.5 s, beyond what the machine did nothing for the reader at all
  std::atomic<std::uint64_t> slowest_ms;
  std::atomic<std::uint64_t> rewrites;
  std::atomic<bool> stop;
  // The wrong ones, as far as there is room: what was read, beside what had to be.
  struct Wrong {
    int file;
    unsigned reader;
    std::uint32_t origin;
    std::uint64_t bytes, version, newest;  // version: as the bytes say it
    std::int64_t age_ms;                   // of the newest
    std::int64_t connected_ms;             // so long ago
  };
  static constexpr std::uint64_t kKept = 16;
  Wrong first_wrong[kKept];
  // Per file: the newest version on the source, and since when it is there.
  std::atomic<std::uint32_t> version[kCrashFiles];
  std::atomic<std::int64_t> since_ns[kCrashFiles];

  std::uint64_t all() const { return reads[0] + reads[1] + reads[2] + reads[3]; }
};

std::string CrashPath(const std::string& source, int file);
// Its first eight bytes are the version.
std::string CrashContent(const std::string& source, int file, std::uint32_t version);
void WriteCrashFiles(const std::string& source, Tally* tally);

// Reads until told to stop; never returns. For a forked child.
[[noreturn]] void ReadAndVerify(const std::string& source, const std::string& socket, Tally* tally, unsigned reader);

}  // namespace tierd::e2e
