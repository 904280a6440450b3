// IoEngine by io_uring. Transfers are single entries. A file read is an openat2 and then one chain of linked entries on the real
// descriptor: statx, read, statx, fadvise, close. A request that does not go that way (short read, EAGAIN, broken chain)
// goes on step by step, with the descriptor held open until its last step is done.
//
// Two rings, because the best way to be told of completions differs (RingStyle), joined by one eventfd. The loop thread calls
// nothing here that can block: what does is done by the kernel's io-wq workers. Where it can start none (ulimit -u) it cancels; a pool of threads then
// does what was cancelled and all that comes behind.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "tierd/io/completion_event.h"
#include "tierd/io/io_engine.h"
#include "tierd/io/request_pool.h"
#include "tierd/io/uring_request.h"
#include "tierd/io/uring_ring.h"

namespace tierd::io {

class UringEngine final : public IoEngine {
 public:
  // kUnsupported, naming the reason, where io_uring cannot be used.
  static Result<std::unique_ptr<IoEngine>> Create(const EngineOptions& options);
  ~UringEngine() override;

  const char* name() const override { return no_workers_ ? "threads" : "io_uring"; }
  int event_fd() const override { return event_.fd(); }
  void SubmitFileRead(FileReadRequest request, FileReadCallback done) override;
  void SubmitStat(StatRequest request, StatCallback done) override;
  void SubmitReadv(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) override;
  void SubmitWritev(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) override;
  void Flush() override;
  std::size_t Poll(std::size_t budget) override;
  std::size_t Wait(int timeout_ms, std::size_t budget) override;
  std::size_t in_flight() const override { return counters_.submitted - counters_.completed + (threads_ ? threads_->in_flight() : 0); }
  std::size_t OlderThan(std::int64_t age_ns) const override;
  void CompensateHung(std::size_t count) override;
  EngineCounters counters() const override;

 private:
  struct WorkerShare;  // io-wq workers of all engines of one thread

  explicit UringEngine(const EngineOptions& options);
  Status SetUp();
  static std::shared_ptr<WorkerShare> ShareOfThisThread();

  UringRequest* NewRequest(UringRequest::Kind kind);
  void SubmitTransfer(UringRequest::Kind kind, int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done);
  void StartWaiting();
  void Send(UringRequest* request);
  void SubmitRings();
  std::size_t TakeFrom(UringRing& ring, std::size_t budget);
  // True if it ended the request.
  bool OnCompletion(const UringRing::Completion& completion);
  void LeaveKernel(UringRequest* request);
  void Complete(UringRequest* request);
  bool HasThreads();
  void HandOverWaiting();
  bool HandOver(UringRequest* request);
  std::size_t EndRefused(std::size_t budget);
  void SetWorkerLimit();

  UringRing& RingOf(const UringRequest& request) { return request.IsTransfer() ? *transfers_ : *files_; }
  std::size_t extra() const;

  // Constant after construction.
  EngineOptions options_;
  CompletionEvent event_;
  std::unique_ptr<UringRing> transfers_;
  std::unique_ptr<UringRing> files_;
  std::shared_ptr<WorkerShare> share_;  // owners: all engines of the thread, and the thread

  // Owned by the loop thread.
  RequestPool<UringRequest> pool_;
  StatxSlots slots_;
  UringContext context_;
  RequestQueue<UringRequest> waiting_transfers_;
  RequestQueue<UringRequest> waiting_files_;
  RequestQueue<UringRequest> resuming_;  // have a slot, found no room in the ring for their next entries
  RequestQueue<UringRequest> refused_;   // neither workers nor threads
  bool no_workers_ = false;
  std::unique_ptr<IoEngine> threads_;  // signals event_
  std::size_t transfers_in_kernel_ = 0;
  std::size_t files_in_kernel_ = 0;
  std::size_t compensated_ = 0;
  unsigned workers_shared_ = 0;  // what this engine has put into share_
  EngineCounters counters_;
  static constexpr std::size_t kBatch = 64;
  std::array<UringRing::Completion, kBatch> batch_;  // taken from a ring; [batch_next_, batch_end_) are still to be run
  unsigned batch_next_ = 0;
  unsigned batch_end_ = 0;
};

}  // namespace tierd::io
