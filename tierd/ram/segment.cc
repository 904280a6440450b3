#include "tierd/ram/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "client_lib/abi/layout.h"
#include "tierd/ram/shared_file.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t kSmallest = 64 << 10;

// Huge pages are promised only where they were seen: hints are ignored silently when a knob is off or memory is in pieces.
Result<std::string> CheckHuge(const std::byte* data, std::uint64_t bytes) {
  const std::uint64_t percent = HugeMappedBytes(data, bytes) * 100 / bytes;
  if (percent < 50) return Status(Code::kUnsupported, "only " + std::to_string(percent) + " % came as 2 MiB pages");
  return std::to_string(percent) + " % in 2 MiB pages";
}

}  // namespace

const char* PageKindName(abi::PageKind kind) {
  switch (kind) {
    case abi::PageKind::kHugetlb: return "hugetlb";
    case abi::PageKind::kShmemHuge: return "shmem_huge";
    case abi::PageKind::kTmpfsHuge: return "tmpfs_huge";
    case abi::PageKind::k4KiB: break;
  }
  return "4k";
}

Segment::Segment(Segment&& other) noexcept { *this = std::move(other); }

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) ::munmap(data_, bytes_);
  serial_ = std::exchange(other.serial_, 0);
  page_kind_ = other.page_kind_;
  bytes_ = std::exchange(other.bytes_, 0);
  data_ = std::exchange(other.data_, nullptr);
  fd_ = std::move(other.fd_);
  client_fd_ = std::move(other.client_fd_);
  reason_ = std::move(other.reason_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

std::uint64_t Segment::PunchUnit() const { return page_kind_ == abi::PageKind::k4KiB ? 4096 : kHugePage; }

Status Segment::Punch(std::uint64_t offset, std::uint64_t bytes) {
  if (offset % PunchUnit() != 0 || bytes % PunchUnit() != 0 || offset > bytes_ || bytes > bytes_ - offset) {
    return Status(Code::kInvalid, "punch segment " + std::to_string(serial_) + " @" + std::to_string(offset) + "+" + std::to_string(bytes));
  }
  return PunchFile(fd_.get(), offset, bytes);
}

Result<UniqueFd> Segment::DuplicateFile() const {
  const int fd = ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 3);
  if (fd < 0) return Status::FromErrno(errno, "duplicate segment " + std::to_string(serial_));
  return UniqueFd(fd);
}

// ---- creation -----------------------------------------------------------------------------------------------------------------

// A memfd from the hugetlb pool: mmap reserves the pages, so that nothing later can fail for want of them.
Status SegmentFactory::FillHugetlb(Segment& segment) const {
  Result<UniqueFd> fd = MakeMemfd("tierd-segment", segment.bytes_, true);
  if (!fd.ok()) return fd.status();
  segment.fd_ = std::move(*fd);
  Result<std::byte*> data = MapShared(segment.fd_.get(), segment.bytes_);
  if (!data.ok()) return Status(Code::kUnsupported, "the hugetlb pool has too few pages (vm.nr_hugepages)", data.status().sys_errno());
  segment.data_ = *data;
  if (Status status = AllocateFile(segment.fd_.get(), segment.bytes_); !status.ok()) return status;
  segment.reason_ = "hugetlb pool";
  return TouchPages(segment.data_, segment.bytes_);
}

// A file of the private tmpfs, else a memfd.
Status SegmentFactory::MakeFile(Segment& segment) const {
  if (Tmpfs() == nullptr) {
    Result<UniqueFd> fd = MakeMemfd("tierd-segment", segment.bytes_);
    if (!fd.ok()) return fd.status();
    segment.fd_ = std::move(*fd);
    return Status::Ok();
  }
  Result<PrivateTmpfs::File> file = Tmpfs()->MakeFile("tierd-segment", segment.bytes_);
  if (!file.ok()) return file.status();
  segment.fd_ = std::move(file->writable);
  segment.client_fd_ = std::move(file->read_only);
  return Status::Ok();
}

// The mapping is advised before its pages exist: fallocate would make small ones.
Status SegmentFactory::FillAdvised(Segment& segment) const {
  Result<std::byte*> data = MapShared(segment.fd_.get(), segment.bytes_);
  if (!data.ok()) return data.status();
  segment.data_ = *data;
  if (::madvise(segment.data_, segment.bytes_, MADV_HUGEPAGE) != 0) {
    return Status(Code::kUnsupported, "MADV_HUGEPAGE refused", errno);
  }
  if (Status status = TouchPages(segment.data_, segment.bytes_); !status.ok()) return status;
  if (Status status = AllocateFile(segment.fd_.get(), segment.bytes_); !status.ok()) return status;
  Result<std::string> seen = CheckHuge(segment.data_, segment.bytes_);
  if (!seen.ok()) return seen.status();
  segment.reason_ = std::move(*seen);
  return Status::Ok();
}

Status SegmentFactory::FillShmemHuge(Segment& segment) const {
  const std::string knob = ChosenWord(options_.shmem_enabled_path);
  if (!GivesHugePages(knob)) {
    return Status(Code::kUnsupported, "shmem_enabled is " + (knob.empty() ? std::string("unreadable") : knob));
  }
  Result<UniqueFd> fd = MakeMemfd("tierd-segment", segment.bytes_);
  if (!fd.ok()) return fd.status();
  segment.fd_ = std::move(*fd);
  if (Status status = FillAdvised(segment); !status.ok()) return status;
  segment.reason_ = "memfd, shmem_enabled=" + knob + ", " + segment.reason_;
  return Status::Ok();
}

Status SegmentFactory::FillTmpfsHuge(Segment& segment) const {
  if (Tmpfs() == nullptr) {
    const bool refused = options_.seal == SegmentSeal::kWrite;
    return Status(Code::kUnsupported, refused ? "ram.seal = \"write\" uses memfds" : options_.no_tmpfs_reason);
  }
  if (Status status = MakeFile(segment); !status.ok()) return status;
  if (Status status = FillAdvised(segment); !status.ok()) return status;
  segment.reason_ = "private tmpfs, " + segment.reason_;
  return Status::Ok();
}

Status SegmentFactory::FillSmall(Segment& segment) const {
  if (Status status = MakeFile(segment); !status.ok()) return status;
  if (Status status = AllocateFile(segment.fd_.get(), segment.bytes_); !status.ok()) return status;
  Result<std::byte*> data = MapShared(segment.fd_.get(), segment.bytes_);
  if (!data.ok()) return data.status();
  segment.data_ = *data;
  segment.reason_ = Tmpfs() != nullptr ? "4 KiB pages of the private tmpfs" : "4 KiB pages of a memfd";
  return TouchPages(segment.data_, segment.bytes_);
}

Result<Segment> SegmentFactory::CreateKind(abi::PageKind kind, std::uint64_t bytes) {
  if (kind != abi::PageKind::k4KiB && bytes % kHugePage != 0) return Status(Code::kUnsupported, "size is no multiple of 2 MiB");
  Segment segment;
  segment.page_kind_ = kind;
  segment.bytes_ = bytes;
  Status filled;
  switch (kind) {
    case abi::PageKind::kHugetlb: filled = FillHugetlb(segment); break;
    case abi::PageKind::kShmemHuge: filled = FillShmemHuge(segment); break;
    case abi::PageKind::kTmpfsHuge: filled = FillTmpfsHuge(segment); break;
    case abi::PageKind::k4KiB: filled = FillSmall(segment); break;
  }
  if (!filled.ok()) return filled;
  // A file of the tmpfs takes no seals, and its client descriptor is there already.
  if (!segment.client_fd_.valid()) {
    if (Status status = SealFile(segment.fd_.get(), options_.seal != SegmentSeal::kShrink); !status.ok()) return status;
    Result<UniqueFd> client = OpenReadOnly(segment.fd_.get());
    if (!client.ok()) return client.status();
    segment.client_fd_ = std::move(*client);
  }
  segment.serial_ = next_serial_.fetch_add(1, std::memory_order_relaxed);
  return segment;
}

Result<Segment> SegmentFactory::Create(std::uint64_t bytes) {
  if (bytes % 4096 != 0 || bytes < kSmallest || bytes > abi::kMaxSegmentBytes) {
    return Status(Code::kInvalid, "segment of " + std::to_string(bytes) + " bytes");
  }
  if (options_.force_kind) {
    Result<Segment> segment = CreateKind(*options_.force_kind, bytes);
    if (segment.ok()) return segment;
    return Status(segment.status().code(), std::string(PageKindName(*options_.force_kind)) + ": " + segment.status().message(), segment.status().sys_errno());
  }
  std::string why;
  for (const abi::PageKind kind : {abi::PageKind::kHugetlb, abi::PageKind::kTmpfsHuge, abi::PageKind::kShmemHuge}) {
    // A file of the tmpfs has the same pages and can be punched.
    if (kind == abi::PageKind::kShmemHuge && Tmpfs() != nullptr) continue;
    Result<Segment> segment = CreateKind(kind, bytes);
    if (segment.ok()) {
      if (!why.empty()) segment->reason_ += " (not " + why + ")";
      return segment;
    }
    // The pool can be short while memory is not; anything else that lacks room would only make the shortage worse.
    if (segment.status().code() == Code::kNoSpace && kind != abi::PageKind::kHugetlb) return segment;
    why += (why.empty() ? "" : "; ") + std::string(PageKindName(kind)) + ": " + segment.status().message();
  }
  Result<Segment> segment = CreateKind(abi::PageKind::k4KiB, bytes);
  if (segment.ok()) segment->reason_ += " (not " + why + ")";
  return segment;
}

}  // namespace tierd::ram
