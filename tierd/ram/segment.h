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
#include "tierd/ram/private_tmpfs.h"
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
  // Segments of a private tmpfs can be punched, and so can memfds of SegmentSeal::kShrink.
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

// How clients are kept from writing into segments (HAZARDS 2.8).
enum class SegmentSeal : std::uint8_t {
  kAuto,    // files of the private tmpfs; memfds, where they must be used, get FUTURE_WRITE
  kWrite,   // memfds with FUTURE_WRITE only: nobody, tierd included, can punch or map writable again
  kShrink,  // as kAuto, but memfds lack FUTURE_WRITE: tierd can punch them, and a client can write
};

struct SegmentOptions {
  // Only this kind of pages, or Create fails with kUnsupported and the reason. Empty: the best that
  // works, in the order hugetlb pool, private tmpfs (else memfd) with MADV_HUGEPAGE, 4 KiB. Not
  // reloadable (applies to segments made later).
  std::optional<abi::PageKind> force_kind;
  SegmentSeal seal = SegmentSeal::kAuto;
  // Outlives the factory. Null: there is none, for the reason given.
  const PrivateTmpfs* tmpfs = nullptr;
  std::string no_tmpfs_reason = "there is no private tmpfs";
  // Knob of shmem huge pages; a path only so that tests can point it at a file of theirs.
  std::string shmem_enabled_path = kShmemEnabledPath;
};

class SegmentFactory {
 public:
  explicit SegmentFactory(SegmentOptions options) : options_(std::move(options)) {}

  // A segment of `bytes`: a multiple of 4 KiB, 64 KiB..256 MiB (kInvalid otherwise). Huge pages need a multiple of 2 MiB: other sizes get 4 KiB
  // pages. Every page touched, inode mode 0400. A memfd is sealed; a tmpfs file cannot be sealed, and
  // its client descriptor is open through a read-only mount instead. kNoSpace when the memory is not
  // there. Blocking; any thread, several at a time.
  Result<Segment> Create(std::uint64_t bytes);

 private:
  Result<Segment> CreateKind(abi::PageKind kind, std::uint64_t bytes);
  // Each allocates, maps and touches the memory of a segment whose bytes_ is set.
  Status FillHugetlb(Segment& segment) const;
  Status FillShmemHuge(Segment& segment) const;
  Status FillTmpfsHuge(Segment& segment) const;
  Status FillSmall(Segment& segment) const;
  Status MakeFile(Segment& segment) const;
  Status FillAdvised(Segment& segment) const;
  const PrivateTmpfs* Tmpfs() const { return options_.seal == SegmentSeal::kWrite ? nullptr : options_.tmpfs; }

  // Constant after construction.
  const SegmentOptions options_;
  // Any thread.
  std::atomic<std::uint32_t> next_serial_{1};
};

// "hugetlb", "shmem_huge", "tmpfs_huge", "4k": label of metrics and JSON.
const char* PageKindName(abi::PageKind kind);

}  // namespace tierd::ram
