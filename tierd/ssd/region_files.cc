#include "tierd/ssd/region_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tierd/base/check.h"

namespace tierd::ssd {

namespace {

UniqueFd OpenRegionFile(int dir_fd, std::uint32_t file, bool direct, int flags) {
  const std::string name = RegionFileName(file);
  const int base = O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags;
  UniqueFd fd(::openat(dir_fd, name.c_str(), base | (direct ? O_DIRECT : 0), 0600));
  if (!fd.valid() && errno == EROFS) fd.Reset(::openat(dir_fd, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | (direct ? O_DIRECT : 0)));
  return fd;
}

int Reserve(int fd, off_t offset, off_t bytes) {
  if (::fallocate(fd, 0, offset, bytes) == 0) return 0;
  if (errno != EOPNOTSUPP) return errno;
  // Such a file system tells of missing space at the write; the file still has to reach that far for reads.
  struct stat st {};
  if (::fstat(fd, &st) != 0) return errno;
  if (st.st_size >= offset + bytes) return 0;
  return ::ftruncate(fd, offset + bytes) == 0 ? 0 : errno;
}

}  // namespace

Result<RegionFiles> RegionFiles::Open(const CacheDirectory& directory) {
  RegionFiles out;
  out.region_bytes_ = directory.superblock.region_bytes;
  out.regions_per_file_ = directory.superblock.regions_per_file;
  out.direct_ = directory.direct_io;
  for (std::uint32_t file = 0;; ++file) {
    UniqueFd fd = OpenRegionFile(directory.dir.get(), file, out.direct_, 0);
    if (!fd.valid()) {
      // A gap ends the list: files are created in order. What lies behind a lost file is lost with it.
      if (errno == ENOENT) return out;
      return Status::FromErrno(errno, "open " + directory.path + "/" + RegionFileName(file));
    }
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return Status::FromErrno(errno, "stat " + directory.path + "/" + RegionFileName(file));
    out.files_.push_back(std::move(fd));
    out.file_bytes_.push_back(static_cast<std::uint64_t>(st.st_size));
  }
}

std::uint32_t RegionFiles::region_count() const {
  if (files_.empty()) return 0;
  const auto last = static_cast<std::uint32_t>(file_bytes_.back() / region_bytes_);
  return static_cast<std::uint32_t>(files_.size() - 1) * regions_per_file_ + std::min(last, regions_per_file_);
}

bool RegionFiles::HasSpace(std::uint32_t region) const {
  const std::uint32_t file = region / regions_per_file_;
  const std::uint64_t start = std::uint64_t{region % regions_per_file_} * region_bytes_;
  if (file >= files_.size() || start + region_bytes_ > file_bytes_[file]) return false;
  // Allocated but unwritten space counts as a hole for SEEK_DATA on some file systems; such a region holds no record anyway, and
  // allocating it again is harmless.
  const off_t data = ::lseek(files_[file].get(), static_cast<off_t>(start), SEEK_DATA);
  if (data < 0) return errno != ENXIO;
  return static_cast<std::uint64_t>(data) < start + region_bytes_;
}

RegionAddress RegionFiles::AddressOf(std::uint32_t region) const {
  const std::uint32_t file = region / regions_per_file_;
  TIERD_CHECK(file < files_.size());
  return {files_[file].get(), std::uint64_t{region % regions_per_file_} * region_bytes_};
}

bool RegionFiles::IsOpen(std::uint32_t region) const { return region / regions_per_file_ < files_.size(); }

void RegionFiles::Install(std::uint32_t region, UniqueFd fd) {
  TIERD_CHECK(region / regions_per_file_ == files_.size());
  files_.push_back(std::move(fd));
  file_bytes_.push_back(0);
}

RegionFiles::AllocateRequest RegionFiles::RequestFor(int dir_fd, std::uint32_t region) {
  files_.reserve(files_.size() + 1);
  file_bytes_.reserve(file_bytes_.size() + 1);
  AllocateRequest r;
  r.dir_fd = dir_fd;
  r.fd = IsOpen(region) ? AddressOf(region).fd : -1;
  r.region = region;
  r.region_bytes = region_bytes_;
  r.regions_per_file = regions_per_file_;
  r.direct = direct_;
  return r;
}

RegionFiles::Allocation RegionFiles::AllocateRegion(const AllocateRequest& request) {
  Allocation out;
  const Space space = MeasureSpace(request.dir_fd);
  if (!space.status.ok()) {
    out.status = space.status;
    return out;
  }
  if (space.read_only) {
    out.status = Status::FromErrno(EROFS, "allocate region " + std::to_string(request.region));
    return out;
  }
  const bool creates = request.fd < 0;
  if (space.free_bytes < request.min_free_bytes + request.region_bytes || space.free_inodes < request.min_free_inodes + (creates ? 1 : 0)) {
    out.status = Status(Code::kNoSpace, "region " + std::to_string(request.region) + " would leave less than min_free");
    return out;
  }
  int fd = request.fd;
  if (creates) {
    out.fd = OpenRegionFile(request.dir_fd, request.region / request.regions_per_file, request.direct, O_CREAT);
    if (!out.fd.valid()) {
      out.status = Status::FromErrno(errno, "create region file for region " + std::to_string(request.region));
      return out;
    }
    fd = out.fd.get();
  }
  const auto offset = static_cast<off_t>(std::uint64_t{request.region % request.regions_per_file} * request.region_bytes);
  int error = Reserve(fd, offset, request.region_bytes);
  while (error == EINTR) error = Reserve(fd, offset, request.region_bytes);
  if (error != 0) out.status = Status::FromErrno(error, "allocate region " + std::to_string(request.region));
  return out;
}

Status RegionFiles::PunchRegion(RegionAddress address, std::uint32_t region_bytes) {
  int rc;
  do {
    rc = ::fallocate(address.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(address.offset), region_bytes);
  } while (rc != 0 && errno == EINTR);
  return rc == 0 ? Status::Ok() : Status::FromErrno(errno, "punch region at " + std::to_string(address.offset));
}

RegionFiles::Space RegionFiles::MeasureSpace(int dir_fd) {
  Space out;
  struct statvfs fs {};
  if (::fstatvfs(dir_fd, &fs) != 0) {
    out.status = Status::FromErrno(errno, "statvfs SSD directory");
    return out;
  }
  out.free_bytes = std::uint64_t{fs.f_bavail} * fs.f_frsize;
  out.free_inodes = fs.f_files == 0 ? ~std::uint64_t{0} : fs.f_favail;
  out.read_only = (fs.f_flag & ST_RDONLY) != 0;
  return out;
}

Status RegionFiles::ReadRegion(RegionAddress address, std::uint64_t offset, std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(address.fd, out.data() + done, out.size() - done, static_cast<off_t>(address.offset + offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "read region at " + std::to_string(address.offset) + "+" + std::to_string(offset));
    if (n == 0) return Status(Code::kIo, "read region at " + std::to_string(address.offset) + "+" + std::to_string(offset) + ": end of file");
    done += static_cast<std::size_t>(n);
  }
  return Status::Ok();
}

}  // namespace tierd::ssd
