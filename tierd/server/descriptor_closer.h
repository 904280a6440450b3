// Closes sockets of clients on a thread of its own. What is queued in a socket goes with it, and a
// client may have queued a descriptor whose last close waits: a TCP socket that lingers, a file of
// a file system that hangs. The kernel makes the thread that closes the socket wait for that.
//
// Owner: SessionHub. Loop thread only. It never waits, not even when it is destroyed: its threads
// are detached, and what they still have to close goes with the process.
#pragma once

#include <cstddef>
#include <memory>

#include "tierd/base/unique_fd.h"

namespace tierd::server {

class DescriptorCloser {
 public:
  static constexpr std::size_t kMostThreads = 8;   // each may hang in one close
  static constexpr std::size_t kMostWaiting = 1024;

  DescriptorCloser();
  ~DescriptorCloser();
  DescriptorCloser(const DescriptorCloser&) = delete;
  DescriptorCloser& operator=(const DescriptorCloser&) = delete;

  // Takes the descriptor. Without a thread or memory for it the descriptor stays open.
  void Close(UniqueFd fd);
  // Descriptors that wait for a thread. The caller takes no more clients at kMostWaiting.
  std::size_t waiting() const;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // shared with the threads, which may outlive this object
};

}  // namespace tierd::server
