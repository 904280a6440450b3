// A mounted ext4 image on a loop device whose files of at most 64 bytes lie in their inodes: millions of them take 256 bytes of disk each, and no block. Needs root.
// Undone at the end; tools/bench.sh undoes it when the process is killed.
#pragma once

#include <cstdint>
#include <string>

#include "bench/harness.h"

namespace bench {

class InlineImage {
 public:
  // With room for so many files of kFileBytes, in directories of a thousand and more.
  InlineImage(const Bench& bench, std::uint64_t files);
  ~InlineImage();
  InlineImage(const InlineImage&) = delete;
  InlineImage& operator=(const InlineImage&) = delete;
  // Empty when it is there, else why it is not.
  const std::string& why_not() const { return why_not_; }
  const std::string& mount() const { return mount_; }
  // Makes `root` and in it the files that pfs_sim::MakeTree would make, of kFileBytes, all with the same bytes, and directory by directory, which takes a fraction of
  // the time. 0 or an errno.
  static int MakeFiles(const std::string& root, const pfs_sim::TreeOptions& tree);
  static constexpr std::uint64_t kFileBytes = 64;

 private:
  bool KeepsFilesInInodes() const;

  const std::string image_;
  const std::string mount_;
  std::string why_not_;
};

}  // namespace bench
