#include "bench/limited_loop.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

namespace bench {

LimitedLoop::LimitedLoop(const Bench& bench, std::uint64_t bytes_per_second) : image_(bench.directory() + "/loop.img"), mount_(bench.directory() + "/loop") {
  group_ = "/sys/fs/cgroup/blkio/tierd-bench-" + std::to_string(::getpid());
  const std::string make = "truncate -s 12G '" + image_ + "' && mkfs.ext4 -q -F '" + image_ + "' && mkdir '" + mount_ + "'" +
                           " && losetup --direct-io=on -f '" + image_ + "' && mount $(losetup -n -O NAME -j '" + image_ + "') '" + mount_ + "' && mkdir " + group_;
  struct stat st {};
  if (Shell(make) != 0 || ::stat(mount_.c_str(), &st) != 0) return;
  const std::string limit = std::to_string(major(st.st_dev)) + ":" + std::to_string(minor(st.st_dev)) + " " + std::to_string(bytes_per_second);
  std::ofstream(group_ + "/blkio.throttle.read_bps_device") << limit << "\n";
  std::ofstream(group_ + "/tasks") << ::getpid() << "\n";
  std::ifstream limits(group_ + "/blkio.throttle.read_bps_device");
  ready_ = std::string(std::istreambuf_iterator<char>(limits), {}).find(limit) != std::string::npos;
}

LimitedLoop::~LimitedLoop() {
  std::ofstream("/sys/fs/cgroup/blkio/tasks") << ::getpid() << "\n";
  Shell("umount '" + mount_ + "'; losetup -j '" + image_ + "' -n -O NAME | xargs -r losetup -d; rmdir " + group_ + "; rm -f '" + image_ + "'; rmdir '" + mount_ + "'");
}

}  // namespace bench
