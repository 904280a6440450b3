// The eventfd by which an engine says that completions wait. Guards itself (the kernel does).
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

#include "tierd/base/unique_fd.h"

namespace tierd::io {

class CompletionEvent {
 public:
  CompletionEvent() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), error_(fd_.valid() ? 0 : errno) {}
  // The same event as that of descriptor `other`, by a descriptor of its own.
  explicit CompletionEvent(int other) : fd_(::fcntl(other, F_DUPFD_CLOEXEC, 0)), error_(fd_.valid() ? 0 : errno) {}

  bool valid() const { return fd_.valid(); }
  int error() const { return error_; }
  int fd() const { return fd_.get(); }

  void Signal() {
    const std::uint64_t one = 1;
    // Refused only when it is readable already, by 2^64 - 2 signals.
    [[maybe_unused]] const ssize_t n = ::write(fd_.get(), &one, sizeof one);
  }
  void Clear() {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t n = ::read(fd_.get(), &count, sizeof count);
  }
  // Gives the descriptor back; only when nobody will signal or clear it any more.
  void Close() { fd_.Reset(); }
  // Until it is readable, a signal handler ran, or timeout_ms passed (-1: for ever).
  void Wait(int timeout_ms) const {
    pollfd wait{fd_.get(), POLLIN, 0};
    ::poll(&wait, 1, timeout_ms);
  }

 private:
  UniqueFd fd_;
  int error_;
};

}  // namespace tierd::io
