// IoEngine by a pool of threads: works on every kernel and under every seccomp filter, and often wins on FUSE-like sources. A
// whole file is one handoff to a worker and back.
//
// Workers are started when requests wait and nobody is idle, up to the options' number. They share one State object with the engine
// and are detached, so that a worker stuck in the kernel outlives the engine without dangling.
#pragma once

#include <cstddef>
#include <memory>

#include "tierd/io/io_engine.h"
#include "tierd/io/request_pool.h"

namespace tierd::io {

class ThreadEngine final : public IoEngine {
 public:
  // Fails with kNoSpace if not even one thread or the eventfd can be had. `event_fd` >= 0: the eventfd to signal, of an engine that this one works for.
  static Result<std::unique_ptr<IoEngine>> Create(const EngineOptions& options, int event_fd = -1);
  ~ThreadEngine() override;

  const char* name() const override { return "threads"; }
  int event_fd() const override;
  void SubmitFileRead(FileReadRequest request, FileReadCallback done) override;
  void SubmitStat(StatRequest request, StatCallback done) override;
  void SubmitReadv(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) override;
  void SubmitWritev(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) override;
  void Flush() override;
  std::size_t Poll(std::size_t budget) override;
  std::size_t Wait(int timeout_ms, std::size_t budget) override;
  std::size_t in_flight() const override { return counters_.submitted - counters_.completed; }
  std::size_t OlderThan(std::int64_t age_ns) const override;
  void CompensateHung(std::size_t count) override;
  EngineCounters counters() const override { return counters_; }

 private:
  struct Request;
  struct State;

  ThreadEngine(const EngineOptions& options, int event_fd);
  Request* NewRequest();
  void SubmitTransfer(Request* request, int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done);
  // Whether ready_ has a request, taking over what the workers have done if needed.
  bool MoreReady();
  void Complete(Request* request);
  void SetWorkerLimit();

  static void* WorkerMain(void* state);
  static bool StartWorker(const std::shared_ptr<State>& state);
  static void Work(const std::shared_ptr<State>& state);
  static void Execute(State& state, Request& request);

  // Constant after construction.
  EngineOptions options_;
  // Owners: the engine and every worker that has not ended.
  std::shared_ptr<State> state_;

  // Owned by the loop thread.
  RequestQueue<Request> unsent_;   // accepted since the last Flush
  RequestQueue<Request> ready_;    // completed by workers, callbacks not yet run
  std::size_t compensated_ = 0;    // requests reported as hung
  EngineCounters counters_;
};

}  // namespace tierd::io
