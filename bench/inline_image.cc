#include "bench/inline_image.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "tierd/base/unique_fd.h"

namespace bench {
namespace {

// A group of blocks has at most 32,768 inodes, and is 128 MiB long. The image has holes: its length takes no room.
constexpr std::uint64_t kGroupInodes = 28'000;
constexpr std::uint64_t kGroupMiB = 128;
constexpr std::uint64_t kBytesPerFile = 320;  // inode and directory entry

// The files of directory `number`: those are dealt to the directories in turn.
int MakeDirectory(int root, const pfs_sim::TreeOptions& tree, std::uint64_t number) {
  const std::string bytes(InlineImage::kFileBytes, 'x');
  const std::string first = pfs_sim::TreePath(tree, number);
  if (::mkdirat(root, first.substr(0, first.find('/')).c_str(), 0755) != 0) return errno;
  for (std::uint64_t i = number; i < tree.files; i += tree.dirs) {
    const tierd::UniqueFd file(::openat(root, pfs_sim::TreePath(tree, i).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.valid()) return errno;
    const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
    if (put != static_cast<ssize_t>(bytes.size())) return put < 0 ? errno : ENOSPC;
  }
  return 0;
}

}  // namespace

InlineImage::InlineImage(const Bench& bench, std::uint64_t files) : image_(bench.directory() + "/inline.img"), mount_(bench.directory() + "/inline") {
  struct statvfs disk {};
  const std::uint64_t wanted = files * kBytesPerFile * 5 / 4;
  if (::geteuid() != 0) {
    why_not_ = "needs root, for a loop device";
  } else if (::statvfs(bench.directory().c_str(), &disk) != 0 || disk.f_bavail * disk.f_frsize < wanted) {
    why_not_ = "needs " + std::to_string(wanted >> 20) + " MiB in " + bench.directory();
  } else {
    const std::uint64_t inodes = files + files / 10;
    const std::uint64_t mebibytes = std::max<std::uint64_t>(8, inodes / kGroupInodes + 1) * kGroupMiB;
    // Nothing is to write to it that we did not ask for: no journal, no times of access, no inode tables zeroed beside us (the holes are zeros).
    const std::string make = "truncate -s " + std::to_string(mebibytes) + "M '" + image_ + "' && mkfs.ext4 -q -F -b 4096 -I 256 -m 0 -O inline_data,^has_journal -N " +
                             std::to_string(inodes) + " '" + image_ + "' && mkdir '" + mount_ + "' && losetup --direct-io=on -f '" + image_ +
                             "' && mount -o noatime,noinit_itable $(losetup -n -O NAME -j '" + image_ + "') '" + mount_ + "'";
    if (Shell(make) != 0) why_not_ = "needs loop devices and ext4 with inline_data";
    else if (!KeepsFilesInInodes()) why_not_ = "ext4 keeps no files in their inodes here";
  }
}

InlineImage::~InlineImage() {
  Shell("umount '" + mount_ + "' 2>/dev/null || umount -l '" + mount_ + "' 2>/dev/null; losetup -n -O NAME -j '" + image_ + "' | xargs -r losetup -d; rm -f '" + image_ +
        "'; [ ! -d '" + mount_ + "' ] || rmdir '" + mount_ + "'");
}

int InlineImage::MakeFiles(const std::string& root, const pfs_sim::TreeOptions& tree) {
  if (::mkdir(root.c_str(), 0755) != 0) return errno;
  const tierd::UniqueFd directory(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return errno;
  std::atomic<std::uint64_t> next = 0;
  std::atomic<int> failure = 0;
  const auto make = [&] {
    for (std::uint64_t number = next++; number < tree.dirs && failure == 0; number = next++)
      if (const int error = MakeDirectory(directory.get(), tree, number); error != 0) failure = error;
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(2U, std::thread::hardware_concurrency()); ++i) threads.emplace_back(make);
  for (std::thread& thread : threads) thread.join();
  return failure;
}

bool InlineImage::KeepsFilesInInodes() const {
  const std::string path = mount_ + "/probe";
  const tierd::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const std::string bytes(kFileBytes, 'x');
  long flags = 0;
  const bool kept = ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) && ::ioctl(file.get(), FS_IOC_GETFLAGS, &flags) == 0 &&
                    (flags & FS_INLINE_DATA_FL) != 0;
  ::unlink(path.c_str());
  return kept;
}

}  // namespace bench
