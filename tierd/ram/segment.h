// Segments: the shared memory that frames live in. A segment is created by a worker thread (it blocks for 30-500 ms: allocation
// and first touch, HAZARDS W2), handed to the loop ready, and destroyed by a worker.
//
// Owner: RamTier, once added. Thread rule: SegmentFactory is thread-safe; a Segment belongs to one thread at a time.
// It does not: place frames (FrameAllocator), enforce the budget (RamTier).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "client_lib/abi/messages.h"
#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"
#include "tierd/ram/shared_file.h"

namespace tierd::ram {

// One published segment: every page of it exists before anyone sees it, so that no reader can take a SIGBUS.
class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();  // unmaps and closes: blocks for ~170 ms per GiB, so on a worker

  std::uint32_t serial() const { return serial_; }
  std::uint64_t bytes() const { return bytes_; }
  // Writable mapping, 2 MiB aligned.
  std::byte* data() const { return data_; }
  // Read-only open file for clients (SCM_RIGHTS); lives as long as the segment.
  int client_fd() const { return client_fd_.get(); }
  abi::PageKind page_kind() const { return page_kind_; }
  // Why this kind and not a better one; one sentence for `doctor` and `status`.
  const std::string& reason() const { return reason_; }

  // Gives the memory of [offset, offset + bytes) back to the system although clients may still map the segment; both multiples of
  // the page size of page_kind() (PunchUnit). Readers of a punched range see zeros, so no frame in it may be live or leased. Blocking.
  // kPermission under FUTURE_WRITE (HAZARDS 2.8): memory then returns when the last mapping goes.
  Status Punch(std::uint64_t offset, std::uint64_t bytes);
  std::uint64_t PunchUnit() const;
  // The file once more, for a worker that punches it while the segment stays where it is.
  Result<UniqueFd> DuplicateFile() const;

 private:
  friend class SegmentFactory;

  std::uint32_t serial_ = 0;
  abi::PageKind page_kind_ = abi::PageKind::k4KiB;
  std::uint64_t bytes_ = 0;
  std::byte* data_ = nullptr;
  UniqueFd fd_;         // read-write, ours alone
  UniqueFd client_fd_;
  std::string reason_;
};

struct SegmentOptions {
  // Only this kind of pages, or Create fails with kUnsupported and the reason. Empty: the best that works, in the order hugetlb pool,
  // memfd with MADV_HUGEPAGE, tmpfs huge=always in a user+mount namespace, 4 KiB. Not reloadable (applies to segments made later).
  std::optional<abi::PageKind> force_kind;
  // Adds F_SEAL_FUTURE_WRITE: nobody, tierd included, can punch or map writable again. Default off (HAZARDS 2.8).
  bool seal_write = false;
  // Knob of shmem huge pages; a path only so that tests can point it at a file of theirs.
  std::string shmem_enabled_path = kShmemEnabledPath;
};

class SegmentFactory {
 public:
  explicit SegmentFactory(SegmentOptions options) : options_(std::move(options)) {}

  // A segment of `bytes`: a multiple of 4 KiB, 64 KiB..256 MiB (kInvalid otherwise). Huge pages need a multiple of 2 MiB: other sizes get 4 KiB
  // pages. Every page touched, sealed SHRINK|GROW|SEAL (a tmpfs file cannot be sealed: its client descriptor is open through a read-only
  // mount instead), inode mode 0400. kNoSpace when the memory is not there. Blocking; any thread, several at a time.
  Result<Segment> Create(std::uint64_t bytes);

 private:
  Result<Segment> CreateKind(abi::PageKind kind, std::uint64_t bytes);
  // Each allocates, maps and touches the memory of a segment whose bytes_ is set.
  Status FillHugetlb(Segment& segment) const;
  Status FillShmemHuge(Segment& segment) const;
  Status FillTmpfsHuge(Segment& segment) const;
  Status FillSmall(Segment& segment) const;

  // Constant after construction.
  const SegmentOptions options_;
  // Any thread.
  std::atomic<std::uint32_t> next_serial_{1};
};

// "hugetlb", "shmem_huge", "tmpfs_huge", "4k": label of metrics and JSON.
const char* PageKindName(abi::PageKind kind);

}  // namespace tierd::ram
