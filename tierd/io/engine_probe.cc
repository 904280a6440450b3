#include "tierd/io/engine_probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "tierd/base/clock.h"
#include "tierd/base/unique_fd.h"
#include "tierd/io/aligned_buffer.h"

namespace tierd::io {
namespace {

// In the order a b b a, so that what the machine does meanwhile falls on both.
constexpr std::size_t kTurns = 4;
constexpr double kClearlyFaster = 1.5;
constexpr std::size_t kStride = 37;  // prime to any number of reads that is a power of two: scattered, each once

std::string Grouped(double value) {
  std::string digits = std::to_string(std::llround(value));
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

// One engine's share of the measurement.
class Contestant {
 public:
  Contestant(const EngineProbe& probe, int file, std::unique_ptr<IoEngine> engine) : probe_(probe), file_(file), engine_(std::move(engine)), memory_(probe.engine.workers * probe.read_bytes) {
    for (std::size_t i = 0; i < probe.engine.workers; ++i) free_.push_back(memory_.data() + i * probe.read_bytes);
  }
  ~Contestant() {
    if (engine_->in_flight() > 0) memory_.Abandon();
  }
  Contestant(const Contestant&) = delete;
  Contestant& operator=(const Contestant&) = delete;

  bool has_memory() const { return !memory_.empty(); }

  // Reads everything once, for at most `limit_ns`; false if that was not enough, or one failed.
  bool TakeTurn(std::int64_t limit_ns) {
    const SystemClock clock;
    const std::int64_t start = clock.PreciseNs();
    std::size_t next = 0;
    for (;;) {
      const std::int64_t left = limit_ns - (clock.PreciseNs() - start);
      for (; left > 0 && next < probe_.reads && !free_.empty(); ++next) Send(next * kStride % probe_.reads);
      engine_->Flush();
      if (engine_->in_flight() == 0) break;
      if (left <= 0) return false;
      engine_->Wait(static_cast<int>(left / 1'000'000) + 1, probe_.engine.workers);
    }
    spent_ns_ += clock.PreciseNs() - start;
    return failed_ == 0 && next == probe_.reads;
  }
  double PerSecond() const { return spent_ns_ == 0 ? 0 : static_cast<double>(read_) * 1e9 / static_cast<double>(spent_ns_); }

 private:
  void Send(std::size_t piece) {
    std::byte* const buffer = free_.back();
    free_.pop_back();
    const iovec part{buffer, probe_.read_bytes};
    engine_->SubmitReadv(file_, {&part, 1}, piece * probe_.read_bytes, [this, buffer](IoResult result) {
      ++(result.error == 0 && result.bytes == probe_.read_bytes ? read_ : failed_);
      free_.push_back(buffer);
    });
  }

  const EngineProbe& probe_;
  const int file_;
  std::unique_ptr<IoEngine> engine_;
  AlignedBuffer memory_;
  std::vector<std::byte*> free_;
  std::size_t read_ = 0;
  std::size_t failed_ = 0;
  std::int64_t spent_ns_ = 0;
};

EngineChoice Otherwise(EngineKind kind, std::string why) {
  EngineChoice choice;
  choice.kind = kind;
  choice.reason = std::move(why);
  return choice;
}

// A file without a name, with bytes in it: blocks that were never written are read without the disk.
Result<UniqueFd> MakeFile(const EngineProbe& probe) {
  constexpr int kFlags = O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC;
  UniqueFd file(::open(probe.directory.c_str(), kFlags, 0600));
  // Or where it will be made.
  for (std::size_t end = probe.directory.rfind('/'); !file.valid() && errno == ENOENT && end != 0 && end != std::string::npos; end = probe.directory.rfind('/', end - 1))
    file.Reset(::open(probe.directory.substr(0, end).c_str(), kFlags, 0600));
  if (!file.valid()) return Status::FromErrno(errno, "a file without a name in " + probe.directory);
  AlignedBuffer bytes(probe.reads * probe.read_bytes);
  if (bytes.empty()) return Status(Code::kNoSpace, "no memory");
  std::memset(bytes.data(), 0x5a, bytes.size());
  const ssize_t written = ::pwrite(file.get(), bytes.data(), bytes.size(), 0);
  if (written < 0) return Status::FromErrno(errno, "write it");
  if (static_cast<std::size_t>(written) < bytes.size()) return Status(Code::kNoSpace, "short write");
  return file;
}

}  // namespace

EngineChoice ChooseEngine(const EngineProbe& probe) {
  Result<std::unique_ptr<IoEngine>> uring_engine = MakeEngine(EngineKind::kUring, probe.engine);
  if (!uring_engine.ok()) return Otherwise(EngineKind::kThreads, uring_engine.status().message());
  Result<std::unique_ptr<IoEngine>> threads_engine = MakeEngine(EngineKind::kThreads, probe.engine);
  if (!threads_engine.ok()) return Otherwise(EngineKind::kUring, "not measured: " + threads_engine.status().message());
  const Result<UniqueFd> file = MakeFile(probe);
  if (!file.ok()) return Otherwise(EngineKind::kUring, "not measured: " + file.status().message());

  Contestant uring(probe, file->get(), std::move(uring_engine).value());
  Contestant threads(probe, file->get(), std::move(threads_engine).value());
  if (!uring.has_memory() || !threads.has_memory()) return Otherwise(EngineKind::kUring, "not measured: no memory");
  Contestant* const order[kTurns] = {&uring, &threads, &threads, &uring};
  for (Contestant* const turn : order) {
    if (!turn->TakeTurn(std::int64_t{probe.max_ms} * 1'000'000 / static_cast<std::int64_t>(kTurns))) return Otherwise(EngineKind::kUring, "not measured: the disk is slow or fails");
  }
  EngineChoice choice;
  choice.uring_per_second = uring.PerSecond();
  choice.threads_per_second = threads.PerSecond();
  choice.kind = choice.threads_per_second >= choice.uring_per_second * kClearlyFaster ? EngineKind::kThreads : EngineKind::kUring;
  choice.reason = "io_uring " + Grouped(choice.uring_per_second) + " against threads " + Grouped(choice.threads_per_second) + " reads/s";
  return choice;
}

}  // namespace tierd::io
