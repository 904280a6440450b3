// A mounted loop device of 12 GiB with ext4 whose reads this process and its later children get at a limited rate (root, cgroup v1 blkio.throttle). Undone at the end;
// tools/bench.sh undoes it when the process is killed.
#pragma once

#include <cstdint>
#include <string>

#include "bench/harness.h"

namespace bench {

class LimitedLoop {
 public:
  LimitedLoop(const Bench& bench, std::uint64_t bytes_per_second);
  ~LimitedLoop();
  LimitedLoop(const LimitedLoop&) = delete;
  LimitedLoop& operator=(const LimitedLoop&) = delete;
  // False: not to be had here, or the limit was not taken.
  bool ready() const { return ready_; }
  const std::string& mount() const { return mount_; }
  static constexpr const char* kNeeds = "needs root, loop devices and cgroup v1 blkio.throttle";

 private:
  const std::string image_;
  const std::string mount_;
  std::string group_;
  bool ready_ = false;
};

}  // namespace bench
