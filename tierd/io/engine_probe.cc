#include "tierd/io/engine_probe.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "tierd/base/clock.h"
#include "tierd/io/aligned_buffer.h"

namespace tierd::io {
namespace {

// Both engines read two disjoint quarters of the sample, in the order a b b a, so that neither has the warmer source.
constexpr std::size_t kTurns = 4;
// Fewer files per turn say more about the noise than about the engine.
constexpr std::size_t kLeastPerTurn = 16;
constexpr double kClearlyFaster = 1.1;

std::string Grouped(double value) {
  std::string digits = std::to_string(std::llround(value));
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

// One engine's share of the measurement.
class Contestant {
 public:
  Contestant(const EngineProbe& probe, std::unique_ptr<IoEngine> engine, std::size_t at_once)
      : probe_(probe), engine_(std::move(engine)), memory_(at_once * probe.file_bytes) {
    for (std::size_t i = 0; i < at_once; ++i) free_.push_back(memory_.data() + i * probe.file_bytes);
  }
  ~Contestant() {
    if (engine_->in_flight() > 0) memory_.Abandon();
  }
  Contestant(const Contestant&) = delete;
  Contestant& operator=(const Contestant&) = delete;

  bool has_memory() const { return !memory_.empty(); }

  // Reads `paths` for at most `limit_ns`; false if requests still run then.
  bool TakeTurn(std::span<const std::string> paths, std::int64_t limit_ns) {
    const SystemClock clock;
    const std::int64_t start = clock.PreciseNs();
    std::size_t next = 0;
    for (;;) {
      const std::int64_t left = limit_ns - (clock.PreciseNs() - start);
      while (left > 0 && next < paths.size() && !free_.empty()) Send(paths[next++]);
      if (engine_->in_flight() == 0) break;
      if (left <= 0) return false;
      engine_->Wait(static_cast<int>(left / 1'000'000) + 1, free_.capacity());
    }
    spent_ns_ += clock.PreciseNs() - start;
    return true;
  }

  std::size_t read() const { return read_; }
  std::size_t failed() const { return failed_; }
  double PerSecond() const {
    return spent_ns_ == 0 ? 0 : static_cast<double>(read_) * 1e9 / static_cast<double>(spent_ns_);
  }

 private:
  void Send(const std::string& path) {
    FileReadRequest request;
    request.root_fd = probe_.root_fd;
    request.path = path;
    request.buffer = free_.back();
    request.capacity = probe_.file_bytes;
    request.follow_symlinks = probe_.follow_symlinks;
    free_.pop_back();
    std::byte* buffer = request.buffer;
    engine_->SubmitFileRead(std::move(request), [this, buffer](const FileReadResult& result) {
      ++(result.error == 0 ? read_ : failed_);
      free_.push_back(buffer);
    });
  }

  const EngineProbe& probe_;
  std::unique_ptr<IoEngine> engine_;
  AlignedBuffer memory_;
  std::vector<std::byte*> free_;
  std::size_t read_ = 0;
  std::size_t failed_ = 0;
  std::int64_t spent_ns_ = 0;
};

EngineChoice Threads(std::string why) {
  EngineChoice choice;
  choice.reason = std::move(why);
  return choice;
}

EngineChoice Compare(const Contestant& uring, const Contestant& threads) {
  EngineChoice choice;
  choice.uring_per_second = uring.PerSecond();
  choice.threads_per_second = threads.PerSecond();
  const bool faster = choice.uring_per_second >= choice.threads_per_second * kClearlyFaster;
  choice.kind = faster ? EngineKind::kUring : EngineKind::kThreads;
  choice.reason = "io_uring " + Grouped(choice.uring_per_second) + " against threads " + Grouped(choice.threads_per_second) +
                  " files/s";
  return choice;
}

}  // namespace

EngineChoice ChooseEngine(const EngineProbe& probe) {
  const std::size_t files = std::min(probe.paths.size(), probe.max_files);
  const std::size_t per_turn = files / kTurns;
  if (per_turn < kLeastPerTurn) return Threads("not measured: " + std::to_string(files) + " files are too few");
  Result<std::unique_ptr<IoEngine>> uring_engine = MakeEngine(EngineKind::kUring, probe.engine);
  if (!uring_engine.ok()) return Threads(uring_engine.status().message());
  Result<std::unique_ptr<IoEngine>> threads_engine = MakeEngine(EngineKind::kThreads, probe.engine);
  if (!threads_engine.ok()) return Threads("not measured: " + threads_engine.status().message());

  const std::size_t at_once = std::min<std::size_t>(per_turn, probe.engine.workers);
  Contestant uring(probe, std::move(uring_engine).value(), at_once);
  Contestant threads(probe, std::move(threads_engine).value(), at_once);
  if (!uring.has_memory() || !threads.has_memory()) return Threads("not measured: no memory");
  const std::int64_t limit_ns = std::int64_t{probe.max_ms} * 1'000'000 / static_cast<std::int64_t>(kTurns);
  Contestant* const order[kTurns] = {&uring, &threads, &threads, &uring};
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const std::span<const std::string> share(&probe.paths[turn * per_turn], per_turn);
    if (!order[turn]->TakeTurn(share, limit_ns)) return Threads("not measured: the source is too slow or hangs");
  }
  if (const std::size_t failed = uring.failed() + threads.failed(); failed > files / 4) {
    return Threads("not measured: " + std::to_string(failed) + " of " + std::to_string(files) + " files could not be read");
  }
  if (uring.read() == 0 || threads.read() == 0) return Threads("not measured: no time");
  return Compare(uring, threads);
}

}  // namespace tierd::io
