// The files that hold the regions: which descriptor and offset a region has, how it gets and gives back disk space.
//
// Owner: the tier. Descriptors are installed on the loop thread and stay open for the tier's life. AllocateRegion, PunchRegion and
// MeasureSpace block: maintenance worker.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"
#include "tierd/ssd/directory.h"

namespace tierd::ssd {

struct RegionAddress {
  int fd = -1;
  std::uint64_t offset = 0;  // of the region in the file
};

class RegionFiles {
 public:
  // Opens what is there. Regions beyond the end of their file are absent.
  static Result<RegionFiles> Open(const CacheDirectory& directory);

  std::uint32_t region_bytes() const { return region_bytes_; }
  // Regions that lie within files of today.
  std::uint32_t region_count() const;
  // True if the region has disk space (a punched one has none). Blocks shortly; for the start.
  bool HasSpace(std::uint32_t region) const;
  // The region's file must be open (loop thread).
  RegionAddress AddressOf(std::uint32_t region) const;
  bool IsOpen(std::uint32_t region) const;
  // Leaves the descriptors open until the process ends.
  void Abandon() {
    for (UniqueFd& file : files_) (void)file.Release();
  }
  // Takes the descriptor that AllocateRegion made.
  void Install(std::uint32_t region, UniqueFd fd);

  struct AllocateRequest {
    int dir_fd = -1;
    int fd = -1;  // of the region's file, -1: create it
    std::uint32_t region = 0;
    std::uint32_t region_bytes = 0;
    std::uint32_t regions_per_file = 0;
    bool direct = false;
    std::uint64_t min_free_bytes = 0;
    std::uint64_t min_free_inodes = 0;
  };
  struct Allocation {
    Status status;  // kNoSpace: the file system is full, or would fall below the minimum
    UniqueFd fd;    // when a file was created
  };
  // Makes room for one descriptor more: Install, with the answer, cannot fail.
  AllocateRequest RequestFor(int dir_fd, std::uint32_t region);
  static Allocation AllocateRegion(const AllocateRequest& request);
  static Status PunchRegion(RegionAddress address, std::uint32_t region_bytes);

  struct Space {
    Status status;
    std::uint64_t free_bytes = 0;
    std::uint64_t free_inodes = 0;  // ~0 where the file system counts none
    bool read_only = false;
  };
  static Space MeasureSpace(int dir_fd);
  // Reads [offset, offset + bytes) of a region into aligned memory. Short or failed: a status.
  static Status ReadRegion(RegionAddress address, std::uint64_t offset, std::span<std::byte> out);

 private:
  std::vector<UniqueFd> files_;
  std::vector<std::uint64_t> file_bytes_;
  std::uint32_t region_bytes_ = 0;
  std::uint32_t regions_per_file_ = 0;
  bool direct_ = false;
};

}  // namespace tierd::ssd
