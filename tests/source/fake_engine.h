// An IoEngine whose requests end when and how the test says. Records what was submitted.
#pragma once

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "tierd/base/unique_fd.h"
#include "tierd/io/io_engine.h"

namespace tierd::source {

class FakeEngine final : public io::IoEngine {
 public:
  struct PendingRead {
    io::FileReadRequest request;
    io::FileReadCallback done;
  };
  struct PendingStat {
    io::StatRequest request;
    io::StatCallback done;
  };

  explicit FakeEngine(const char* engine_name) : label(engine_name), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~FakeEngine() override {
    if (on_destroy) on_destroy();
  }

  const char* name() const override { return label; }
  int event_fd() const override { return event_.get(); }
  void SubmitFileRead(io::FileReadRequest request, io::FileReadCallback done) override {
    order.push_back(request.path);
    reads.push_back(PendingRead{std::move(request), std::move(done)});
  }
  void SubmitStat(io::StatRequest request, io::StatCallback done) override {
    order.push_back(request.path);
    stats.push_back(PendingStat{std::move(request), std::move(done)});
  }
  void SubmitReadv(int, std::span<const iovec>, std::uint64_t, io::IoCallback) override { std::abort(); }
  void SubmitWritev(int, std::span<const iovec>, std::uint64_t, io::IoCallback) override { std::abort(); }
  void Flush() override { ++flushes; }
  std::size_t Poll(std::size_t budget) override {
    std::size_t ran = 0;
    while (ran < budget && !ended_.empty()) {
      const std::function<void()> completion = std::move(ended_.front());
      ended_.pop_front();
      completion();
      ++ran;
    }
    std::uint64_t count = 0;
    if (ended_.empty()) (void)!::read(event_.get(), &count, sizeof count);
    return ran;
  }
  std::size_t Wait(int, std::size_t budget) override { return Poll(budget); }
  std::size_t in_flight() const override { return reads.size() + stats.size() + ended_.size(); }
  std::size_t OlderThan(std::int64_t) const override { return 0; }
  void CompensateHung(std::size_t count) override { compensated += count; }
  io::EngineCounters counters() const override { return {}; }

  // The first pending read of `path` ends with `result` at the next Poll. False: there is none.
  bool EndRead(const std::string& path, const io::FileReadResult& result) {
    for (auto read = reads.begin(); read != reads.end(); ++read) {
      if (read->request.path != path) continue;
      ended_.push_back([done = std::move(read->done), result] { done(result); });
      reads.erase(read);
      Signal();
      return true;
    }
    return false;
  }
  bool EndStat(const std::string& path, const io::StatResult& result) {
    for (auto stat = stats.begin(); stat != stats.end(); ++stat) {
      if (stat->request.path != path) continue;
      ended_.push_back([done = std::move(stat->done), result] { done(result); });
      stats.erase(stat);
      Signal();
      return true;
    }
    return false;
  }

  std::list<PendingRead> reads;
  std::list<PendingStat> stats;
  std::vector<std::string> order;  // paths in the order of submission
  std::function<void()> on_destroy;
  std::size_t compensated = 0;
  std::size_t flushes = 0;
  const char* label;

 private:
  void Signal() {
    const std::uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof one);
  }
  UniqueFd event_;
  std::deque<std::function<void()>> ended_;
};

}  // namespace tierd::source
