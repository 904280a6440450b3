// Notices that another file system has come to lie where a source was: unmounted and mounted anew, or covered by a mount on top (HAZARDS 2.13). The daemon's own
// descriptor still leads to the old one, whose files it would go on comparing with themselves; programs would read from it what their path no longer names.
//
// It costs nothing while no mount changes: the kernel tells when the table of mounts did. The roots are then looked at by a thread that may hang, and
// once more a second later, since mounting anew is not one step.
//
// Owner: main.cc. Loop thread only; the thread touches nothing of the object.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

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
  explicit RootWatch(boost::asio::io_context& loop) : loop_(loop), mounts_(loop), timer_(loop), alive_(std::make_shared<bool>(true)) {}
  ~RootWatch() { *alive_ = false; }
  RootWatch(const RootWatch&) = delete;
  RootWatch& operator=(const RootWatch&) = delete;

  // Calls `moved` once, with a path of `roots` that names another directory than it did. Without /proc nothing ever happens.
  void Watch(std::vector<Root> roots, std::function<void(const std::string& path)> moved);

 private:
  void AwaitChange();
  void LookSoon();
  void Look();
  void Seen(const std::string& path);

  boost::asio::io_context& loop_;
  boost::asio::posix::stream_descriptor mounts_;
  boost::asio::steady_timer timer_;
  std::vector<Root> roots_;
  std::function<void(const std::string&)> moved_;
  std::string suspect_;     // was another directory at the last look; "": none
  bool due_ = false;        // a look is planned or under way
  bool again_ = false;      // and the mounts have changed since it began
  std::shared_ptr<bool> alive_;  // read and written on the loop thread
};

}  // namespace tierd
