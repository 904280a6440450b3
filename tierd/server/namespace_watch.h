// Notices that mounts have changed in a mount namespace that clients are in. What is mounted below a source there is no file of the source for them
// (HAZARDS 2.14), and a client that only hits would ask nobody.
//
// One descriptor of mountinfo for each namespace, however many clients are in it; the kernel tells of a change through it. It keeps the namespace, so it is
// closed with the last of them.
//
// Owner: the session hub. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

namespace tierd::server {

class NamespaceWatch {
 public:
  explicit NamespaceWatch(boost::asio::io_context& loop) : loop_(loop) {}
  NamespaceWatch(const NamespaceWatch&) = delete;
  NamespaceWatch& operator=(const NamespaceWatch&) = delete;

  // Of the client `pid`, from before it looks at its mounts. 0: they cannot be watched (no descriptor, no /proc), and are to be doubted time and again.
  // Throws std::bad_alloc.
  std::uint32_t Add(std::uint32_t pid);
  // What Add returned; 0 is left alone.
  void Remove(std::uint32_t space);

  // Mounts have changed there. Set before the first Add; may call neither Add nor Remove.
  std::function<void(std::uint32_t space)> on_change;

 private:
  struct Space {
    explicit Space(boost::asio::io_context& loop) : mounts(loop) {}
    std::uint64_t inode = 0;  // of the namespace; 0: not known, and nobody else's
    std::uint32_t clients = 1;
    boost::asio::posix::stream_descriptor mounts;
  };
  void Await(std::uint32_t id, Space& space);

  boost::asio::io_context& loop_;
  std::map<std::uint32_t, std::unique_ptr<Space>> spaces_;
  std::uint32_t last_id_ = 0;
};

// Whether that process is in the daemon's own mount namespace. False where it cannot be told.
bool IsInOurMountNamespace(std::uint32_t pid);

}  // namespace tierd::server
