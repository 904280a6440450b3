// What is mounted below a source, as this process sees it: names there are not the daemon's files, whatever it has by
// them (HAZARDS 2.14). A container with a volume inside of the data set, a private mount of a job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tierd::client {

class MountsBelow {
 public:
  static constexpr std::size_t kMost = 64;
  // kUnknown: there was no descriptor, or no memory, to look with.
  enum class Found : std::uint8_t { kNone, kSome, kTooMany, kUnknown };

  // Reads /proc/self/mountinfo (nothing is mounted where there is none). Three to six system calls, no memory. Any
  // thread, signal handlers too; two at a time find the same.
  Found Look(const char* root);
  // Whether no mount came or went since Look() that the root's path goes through or that is below the root. False
  // where that cannot be told. Asks no file system, so that it returns while the source hangs.
  bool AreAsLookedAt(const char* root) const;
  // Whether `relative` (canonical, below the root) is, or is below, one that was found.
  bool Cover(const char* relative, std::size_t bytes) const;

 private:
  // Each word holds the length (16 bits) and part of the hash of one name below the root; 0: none. Another name with
  // the same word is read from the source, which costs time and no bytes.
  std::atomic<std::uint64_t> names_[kMost];
  // A hash of the lines of mountinfo that concern the root, as Look() found them; 0: its path goes through a link, so
  // that other lines may concern it, too.
  std::atomic<std::uint64_t> lines_;
};

}  // namespace tierd::client
