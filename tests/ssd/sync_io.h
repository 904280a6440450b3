// An IoEngine that does everything by itself inside Poll(), in order, so that a test decides what each request meets: an errno, a short
// count, a hang, a torn write. Only the transfers are implemented.
#pragma once

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <functional>
#include <vector>

#include "tierd/base/check.h"
#include "tierd/base/unique_fd.h"
#include "tierd/io/io_engine.h"

namespace tierd::ssd {

struct IoFault {
  int error = 0;                     // the request fails with it
  std::size_t apply_bytes = ~0ull;   // of a write: so many bytes reach the file before (~0: all if no error, none if error)
  bool hang = false;                 // never completes until Release()
};

class SyncIo final : public io::IoEngine {
 public:
  // Asked for each transfer: (is it a write, its number among reads or writes from 0).
  std::function<IoFault(bool write, std::uint64_t number)> fault;
  // As well: (is it a write, where in its file it begins).
  std::function<IoFault(bool write, std::uint64_t offset)> fault_at;
  std::uint64_t reads = 0, writes = 0;
  std::vector<std::pair<std::uint64_t, std::size_t>> read_log;  // offset, bytes

  const char* name() const override { return "sync"; }
  int event_fd() const override { return event_.get(); }
  void SubmitFileRead(io::FileReadRequest, io::FileReadCallback) override { TIERD_CHECK(false); }
  void SubmitStat(io::StatRequest, io::StatCallback) override { TIERD_CHECK(false); }
  void SubmitReadv(int fd, std::span<const iovec> iov, std::uint64_t offset, io::IoCallback done) override {
    queue_.push_back({fd, {iov.begin(), iov.end()}, offset, std::move(done), false});
    ++counters_.submitted;
  }
  void SubmitWritev(int fd, std::span<const iovec> iov, std::uint64_t offset, io::IoCallback done) override {
    queue_.push_back({fd, {iov.begin(), iov.end()}, offset, std::move(done), true});
    ++counters_.submitted;
  }
  void Flush() override {}
  std::size_t Poll(std::size_t budget) override {
    std::size_t ran = 0;
    while (ran < budget && !queue_.empty()) {
      Request request = std::move(queue_.front());
      queue_.pop_front();
      if (Run(request)) ++ran;
    }
    return ran;
  }
  std::size_t Wait(int timeout_ms, std::size_t budget) override {
    const std::size_t ran = Poll(budget);
    if (ran == 0 && timeout_ms > 0) ::usleep(200);
    return ran;
  }
  std::size_t in_flight() const override { return queue_.size() + hung_.size(); }
  std::size_t OlderThan(std::int64_t) const override { return hung_.size(); }
  void CompensateHung(std::size_t) override {}
  io::EngineCounters counters() const override { return counters_; }

  // Hung requests run now.
  void Release() {
    for (Request& request : hung_) queue_.push_back(std::move(request));
    hung_.clear();
    fault = nullptr;
  }
  std::size_t hung() const { return hung_.size(); }

 private:
  struct Request {
    int fd;
    std::vector<iovec> iov;
    std::uint64_t offset;
    io::IoCallback done;
    bool write;
  };

  bool Run(Request& request) {
    const std::uint64_t number = request.write ? writes++ : reads++;
    IoFault f;
    if (fault) f = fault(request.write, number);
    if (fault_at && f.error == 0) f = fault_at(request.write, request.offset);
    if (f.hang) {
      hung_.push_back(std::move(request));
      return false;
    }
    std::size_t want = 0;
    for (const iovec& part : request.iov) want += part.iov_len;
    if (!request.write) read_log.emplace_back(request.offset, want);
    std::size_t limit = f.apply_bytes == ~0ull ? (f.error != 0 ? 0 : want) : std::min(want, f.apply_bytes);
    io::IoResult result = Transfer(request, limit);
    if (f.error != 0) result.error = f.error;
    ++counters_.completed;
    request.done(result);
    return true;
  }

  static io::IoResult Transfer(const Request& request, std::size_t limit) {
    io::IoResult result;
    for (const iovec& part : request.iov) {
      std::size_t done = 0;
      const std::size_t want = std::min(part.iov_len, limit - result.bytes);
      while (done < want) {
        auto* at = static_cast<std::byte*>(part.iov_base) + done;
        const auto offset = static_cast<off_t>(request.offset + result.bytes);
        const ssize_t n = request.write ? ::pwrite(request.fd, at, want - done, offset) : ::pread(request.fd, at, want - done, offset);
        if (n < 0) {
          result.error = errno;
          return result;
        }
        if (n == 0) return result;
        done += static_cast<std::size_t>(n);
        result.bytes += static_cast<std::size_t>(n);
      }
    }
    return result;
  }

  UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::deque<Request> queue_;
  std::deque<Request> hung_;
  io::EngineCounters counters_;
};

}  // namespace tierd::ssd
