// Notices that a source's path names another directory than it did, or none: unmounted and mounted anew, covered by a mount on top (HAZARDS 2.13), renamed, replaced
// by another version of the data set (HAZARDS 2.14). The daemon's own descriptor still leads to the old one, whose files it would go on comparing with themselves;
// programs would read from it what their path no longer names.
//
// The kernel tells when the table of mounts has changed. Of a rename nobody tells, so that the roots are also looked at once per staleness bound. A look is a statx of
// each root, by a thread that may hang, and once more a second later if one seems to have moved, since mounting anew is not one step.
//
// Owner: main.cc. Loop thread only; the thread touches nothing of the object.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tierd {

class RootWatch {
 public:
  struct Root {
    std::string path;
    std::uint64_t dev = 0;
    std::uint64_t ino = 0;
  };
  explicit RootWatch(boost::asio::io_context& loop) : loop_(loop), mounts_(loop), timer_(loop), period_(loop), alive_(std::make_shared<bool>(true)) {}
  ~RootWatch() { *alive_ = false; }
  RootWatch(const RootWatch&) = delete;
  RootWatch& operator=(const RootWatch&) = delete;

  // Calls `moved` once, with a path of `roots` that names another directory than it did. A rename is noticed within `bound`, or three seconds if that is less.
  void Watch(std::vector<Root> roots, std::chrono::milliseconds bound, std::function<void(const std::string& path)> moved);

 private:
  void AwaitChange();
  void AwaitPeriod();
  void LookSoon();
  void Look();
  void Seen(const std::string& path);

  boost::asio::io_context& loop_;
  boost::asio::posix::stream_descriptor mounts_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer period_;
  std::chrono::milliseconds every_{};
  std::vector<Root> roots_;
  std::function<void(const std::string&)> moved_;
  std::string suspect_;     // was another directory at the last look; "": none
  bool due_ = false;        // a look is planned or under way
  bool again_ = false;      // and the mounts have changed since it began
  std::shared_ptr<bool> alive_;  // read and written on the loop thread
};

}  // namespace tierd
