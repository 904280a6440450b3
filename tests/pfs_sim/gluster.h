// A real parallel file system as a fixture: GlusterFS with two bricks on loopback (gluster.sh).
//
// The destructor stops it and removes its directory; if the test dies, a watcher stops it within a
// second or two. Needs root and the GlusterFS packages. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace pfs_sim {

class GlusterRig {
 public:
  // `delay_us` is added to each lookup, stat, open, read and readdir in the bricks. Null when it cannot
  // be started; *why starts with "unavailable" when it is not possible on this machine.
  static std::unique_ptr<GlusterRig> Start(uint64_t delay_us, std::string* why);
  ~GlusterRig();
  GlusterRig(const GlusterRig&) = delete;
  GlusterRig& operator=(const GlusterRig&) = delete;

  std::string mount() const { return base_ + "/mnt"; }
  // The brick's directory: its share of the files, with the same relative paths.
  std::string brick(int number) const { return base_ + "/brick" + std::to_string(number); }

  // Brick 1 or 2: hung, well again, dead.
  bool Pause(int number) { return Run("pause", std::to_string(number)); }
  bool Resume(int number) { return Run("resume", std::to_string(number)); }
  bool Kill(int number) { return Run("kill", std::to_string(number)); }

  // Ends everything but keeps the files; Restart serves them again.
  bool Stop() { return Run("stop", ""); }
  bool Restart(uint64_t delay_us);

 private:
  GlusterRig() = default;
  // Runs one command of the script; its messages are kept in last_output_.
  bool Run(const std::string& verb, const std::string& arguments);

  std::string base_;
  std::string last_output_;
  int last_status_ = 0;
};

}  // namespace pfs_sim
