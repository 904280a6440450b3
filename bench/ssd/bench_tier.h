// What the SSD benchmarks share: a tier with an owner that keeps everything, driven by polling.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "tierd/base/clock.h"
#include "tierd/io/io_engine.h"
#include "tierd/ssd/ssd_tier.h"

namespace tierd::ssd {

class BenchTier final : public SsdOwner {
 public:
  BenchTier(const SsdOptions& options, io::EngineKind kind) {
    Result<std::unique_ptr<io::IoEngine>> engine = io::MakeEngine(kind, {});
    if (!engine.ok()) Die(engine.status());
    engine_ = std::move(*engine);
    Result<std::unique_ptr<SsdTier>> opened = SsdTier::Open(options, *engine_, clock_, *this);
    if (!opened.ok()) Die(opened.status());
    tier = std::move(*opened);
  }
  ~BenchTier() override { tier.reset(); }

  [[noreturn]] static void Die(const Status& status) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }
  // What can be done without waiting.
  bool Work() {
    tier->Flush();
    return tier->Poll(256) > 0 || tier->more_work();
  }
  // One turn; sleeps in poll(2) when there is nothing to do, as the daemon's loop does.
  void Turn() {
    if (Work()) return;
    pollfd fds[2] = {{engine_->event_fd(), POLLIN, 0}, {tier->wake_fd(), POLLIN, 0}};
    ::poll(fds, 2, 50);
  }
  void RunUntil(const std::function<bool()>& condition) {
    while (!condition()) Turn();
  }

  double Worth(const SsdRecord&) override { return 1; }
  void OnMoved(const SsdRecord&, const SsdLocation&) override {}
  void OnGone(const SsdRecord&, SsdGone) override {}

  std::unique_ptr<SsdTier> tier;

 private:
  SystemClock clock_;
  std::unique_ptr<io::IoEngine> engine_;
};

inline double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

inline RecordIdentity BenchIdentity(SsdTier& tier, std::uint64_t number, std::uint64_t bytes) {
  RecordIdentity id;
  id.source_id = 1;
  id.dataset_id = 1;
  id.key = {abi::Mix64(number + 1), number};
  id.version = {number, bytes, 1'700'000'000'000'000'000 + static_cast<std::int64_t>(number), 1};
  id.chunk_bytes = 4u << 20;
  id.fill_sequence = tier.NextFillSequence();
  return id;
}

}  // namespace tierd::ssd
