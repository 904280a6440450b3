#include "tierd/io/uring_engine.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <new>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/io/engine_faults.h"
#include "tierd/io/mount_of.h"
#include "tierd/io/thread_engine.h"

namespace tierd::io {
namespace {

// Entries of a submission ring: more than one loop turn prepares; what does not fit is submitted on the way.
constexpr unsigned kMostEntries = 512;
// How long the destructor lets requests end, so that only hung ones are left behind.
constexpr std::int64_t kGraceNs = 200'000'000;
constexpr std::int64_t kNsPerMs = 1'000'000;

}  // namespace

// The kernel keeps one set of io-wq workers for a thread and the last limit that any ring of the thread registers: the limit is
// the sum of what the engines want, so that a source that hangs does not use up the workers of another.
struct UringEngine::WorkerShare {
  unsigned total = 0;
};

std::shared_ptr<UringEngine::WorkerShare> UringEngine::ShareOfThisThread() {
  thread_local const auto share = std::make_shared<WorkerShare>();
  return share;
}

Result<std::unique_ptr<IoEngine>> UringEngine::Create(const EngineOptions& options) {
  std::unique_ptr<UringEngine> engine(new UringEngine(options));
  if (Status status = engine->SetUp(); !status.ok()) return status;
  return Result<std::unique_ptr<IoEngine>>(std::move(engine));
}

UringEngine::UringEngine(const EngineOptions& options) : options_(options) {
  context_.faults = options.faults;
  context_.statx_tells_mounts = StatxTellsMounts();
}

Status UringEngine::SetUp() {
  if (!event_.valid()) return Status::FromErrno(event_.error(), "eventfd for io_uring");
  const std::size_t file_requests = options_.workers + options_.max_replacements;
  if (!slots_.Allocate(file_requests)) return Status(Code::kNoSpace, "no memory for the stat results of io_uring");

  RingOptions ring;
  ring.event_fd = event_.fd();
  ring.faults = options_.faults;
  ring.submission_entries = std::clamp(std::bit_ceil(options_.depth), 8U, kMostEntries);
  const unsigned forced = options_.faults == nullptr ? 0 : options_.faults->CompletionEntries();

  ring.style = RingStyle::kTransfers;
  ring.completion_entries = forced != 0 ? forced : std::bit_ceil(options_.depth + options_.max_replacements);
  Result<std::unique_ptr<UringRing>> transfers = UringRing::Create(ring);
  if (!transfers.ok()) return transfers.status();
  transfers_ = std::move(transfers).value();

  ring.style = RingStyle::kChains;
  const auto most = static_cast<unsigned>(UringRequest::kChainEntries * file_requests);
  ring.completion_entries = forced != 0 ? forced : std::bit_ceil(most);
  Result<std::unique_ptr<UringRing>> files = UringRing::Create(ring);
  if (!files.ok()) return files.status();
  files_ = std::move(files).value();

  share_ = ShareOfThisThread();
  SetWorkerLimit();
  return Status::Ok();
}

UringEngine::~UringEngine() {
  if (share_ == nullptr) return;  // SetUp failed
  threads_.reset();
  context_.stopping = true;
  pool_.ForEach([](UringRequest& request) {
    request.file_done = nullptr;
    request.stat_done = nullptr;
    request.io_done = nullptr;
  });
  waiting_transfers_ = {};
  waiting_files_ = {};
  const std::int64_t deadline = CoarseNs() + kGraceNs;
  while (transfers_in_kernel_ + files_in_kernel_ > 0) {
    const std::int64_t left = deadline - CoarseNs();
    if (left <= 0) break;
    Flush();
    event_.Wait(static_cast<int>((left + kNsPerMs - 1) / kNsPerMs));
    Poll(std::numeric_limits<std::size_t>::max());
  }
  if (files_in_kernel_ > 0) {
    slots_.Abandon();
    pool_.ForEach([](UringRequest& request) {
      if (request.slot != nullptr && request.file.rest != nullptr) request.file.rest->Abandon();
    });
  }
  share_->total -= workers_shared_;
}

UringRequest* UringEngine::NewRequest(UringRequest::Kind kind) {
  UringRequest* request = pool_.Take();
  request->Start(kind);
  ++counters_.submitted;
  return request;
}

void UringEngine::SubmitFileRead(FileReadRequest request, FileReadCallback done) {
  TIERD_CHECK(request.further.size() <= FileReadRequest::kMaxFurther && (request.further.empty() || request.rest == nullptr));
  UringRequest* r = NewRequest(UringRequest::Kind::kFileRead);
  r->direct = request.direct;
  r->file = std::move(request);
  r->pieces.resize(r->file.further.empty() ? 0 : kMaxPieces);
  r->careful = !r->pieces.empty();
  r->file_done = std::move(done);
  r->file_result = FileReadResult();
  waiting_files_.Push(r);
}

void UringEngine::SubmitStat(StatRequest request, StatCallback done) {
  UringRequest* r = NewRequest(UringRequest::Kind::kStat);
  r->stat = std::move(request);
  r->stat_done = std::move(done);
  r->stat_result = StatResult();
  waiting_files_.Push(r);
}

void UringEngine::SubmitReadv(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) {
  SubmitTransfer(UringRequest::Kind::kReadv, fd, iov, offset, std::move(done));
}

void UringEngine::SubmitWritev(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) {
  SubmitTransfer(UringRequest::Kind::kWritev, fd, iov, offset, std::move(done));
}

void UringEngine::SubmitTransfer(UringRequest::Kind kind, int fd, std::span<const iovec> iov, std::uint64_t offset,
                                 IoCallback done) {
  TIERD_CHECK(iov.size() <= kMaxIov);
  UringRequest* r = NewRequest(kind);
  std::copy(iov.begin(), iov.end(), r->iov.begin());
  r->rest = SkipBytes({r->iov.data(), iov.size()}, 0);
  r->fd = fd;
  r->offset = offset;
  r->io_done = std::move(done);
  waiting_transfers_.Push(r);
}

void UringEngine::Flush() {
  StartWaiting();
  SubmitRings();
}

std::size_t UringEngine::extra() const { return std::min<std::size_t>(compensated_, options_.max_replacements); }

void UringEngine::StartWaiting() {
  for (std::size_t n = resuming_.size(); n > 0; --n) Send(resuming_.Pop());
  if (no_workers_) HandOverWaiting();
  const std::size_t total = options_.depth + extra();
  const std::size_t files = options_.workers + extra();
  while (!waiting_transfers_.empty() && transfers_in_kernel_ + files_in_kernel_ < total) {
    ++transfers_in_kernel_;
    UringRequest* request = waiting_transfers_.Pop();
    request->started_ns = CoarseNs();
    Send(request);
  }
  while (!waiting_files_.empty() && files_in_kernel_ < files && transfers_in_kernel_ + files_in_kernel_ < total) {
    ++files_in_kernel_;
    UringRequest* request = waiting_files_.Pop();
    request->started_ns = CoarseNs();
    request->slot = slots_.Take();
    Send(request);
  }
}

void UringEngine::Send(UringRequest* request) {
  UringRing& ring = RingOf(*request);
  if (ring.Reserve(request->EntriesNeeded())) {
    request->Prepare(ring, context_);
  } else {
    resuming_.Push(request);
  }
}

void UringEngine::SubmitRings() {
  const bool transfers = transfers_->Submit();
  const bool files = files_->Submit();
  if (threads_ != nullptr) threads_->Flush();
  // What remains needs another turn, which no completion may announce.
  if (!transfers || !files || !resuming_.empty() || !refused_.empty()) event_.Signal();
}

std::size_t UringEngine::Poll(std::size_t budget) {
  transfers_->Gather();
  files_->Gather();
  event_.Clear();
  std::size_t ran = 0;
  try {
    if (threads_ != nullptr) ran = threads_->Poll(budget);  // first, as it clears the event again
    ran += TakeFrom(*transfers_, budget - ran);
    ran += TakeFrom(*files_, budget - ran);
    ran += EndRefused(budget - ran);
  } catch (...) {
    event_.Signal();  // nothing else announces what is left of the batch
    throw;
  }
  Flush();
  // What the budget left; and task work that the kernel put off in the middle of a batch, which it does not announce again.
  if (batch_next_ < batch_end_ || transfers_->HasCompletions() || files_->HasCompletions()) event_.Signal();
  return ran;
}

// What a callback throws ends the turn; the ring has given up the whole batch by then, so the rest of it is kept for the next one.
std::size_t UringEngine::TakeFrom(UringRing& ring, std::size_t budget) {
  std::size_t ran = 0;
  while (ran < budget) {
    if (batch_next_ == batch_end_) {
      batch_next_ = 0;
      batch_end_ = ring.Take(batch_.data(), static_cast<unsigned>(std::min(kBatch, budget - ran)));
      if (batch_end_ == 0) break;
    }
    ran += OnCompletion(batch_[batch_next_++]) ? 1 : 0;
  }
  return ran;
}

bool UringEngine::OnCompletion(const UringRing::Completion& completion) {
  UringRequest* request = UringRequest::Of(completion.user_data);
  if (!request->TakeResult(UringRequest::StepOf(completion.user_data), completion.result, context_)) return false;
  if (!request->Advance(context_)) {
    Send(request);
    return false;
  }
  LeaveKernel(request);
  if (request->WasCancelled() && !context_.stopping) {
    no_workers_ = true;
    if (!request->IsTransfer()) waiting_files_.Push(request);
    else if (!HasThreads() || !HandOver(request)) refused_.Push(request);
    return false;
  }
  Complete(request);
  return true;
}

bool UringEngine::HasThreads() {
  if (threads_ != nullptr) return true;
  try {
    if (Result<std::unique_ptr<IoEngine>> made = ThreadEngine::Create(options_, event_.fd()); made.ok()) threads_ = std::move(made).value();
  } catch (const std::bad_alloc&) {
  }
  return threads_ != nullptr;
}

void UringEngine::HandOverWaiting() {
  if (waiting_files_.empty() && waiting_transfers_.empty()) return;
  // Each file read would be cancelled; a transfer seldom blocks.
  if (!HasThreads()) return refused_.Append(&waiting_files_);
  for (RequestQueue<UringRequest>* const waiting : {&waiting_files_, &waiting_transfers_}) {
    while (!waiting->empty()) {
      UringRequest* const request = waiting->Pop();
      if (!HandOver(request)) refused_.Push(request);
    }
  }
}

// From its beginning, but for what a transfer has moved. False: no memory.
bool UringEngine::HandOver(UringRequest* request) {
  try {
    switch (request->kind) {
      case UringRequest::Kind::kFileRead: threads_->SubmitFileRead(request->file, request->file_done); break;
      case UringRequest::Kind::kStat: threads_->SubmitStat(request->stat, request->stat_done); break;
      case UringRequest::Kind::kReadv:
      case UringRequest::Kind::kWritev: {
        const auto submit = request->kind == UringRequest::Kind::kReadv ? &IoEngine::SubmitReadv : &IoEngine::SubmitWritev;
        IoCallback done = [done = request->io_done, before = request->bytes](IoResult result) { done({result.error, before + result.bytes}); };
        (threads_.get()->*submit)(request->fd, request->rest, request->offset + request->bytes, std::move(done));
        break;
      }
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  request->file_done = nullptr;
  request->stat_done = nullptr;
  request->io_done = nullptr;
  request->file.rest.reset();
  pool_.Give(request);
  --counters_.submitted;  // it counts there
  return true;
}

std::size_t UringEngine::EndRefused(std::size_t budget) {
  std::size_t ran = 0;
  for (; ran < budget && !refused_.empty(); ++ran) {
    UringRequest* const request = refused_.Pop();
    request->file_result.error = request->stat_result.error = EAGAIN;
    request->io_result = {EAGAIN, request->bytes};
    Complete(request);
  }
  return ran;
}

std::size_t UringEngine::Wait(int timeout_ms, std::size_t budget) {
  Flush();
  const std::int64_t deadline = CoarseNs() + timeout_ms * kNsPerMs;
  for (;;) {
    if (const std::size_t ran = Poll(budget); ran > 0 || in_flight() == 0) return ran;
    // Woken also by steps of requests that have not ended yet.
    const std::int64_t left = timeout_ms < 0 ? -1 : (deadline - CoarseNs() + kNsPerMs - 1) / kNsPerMs;
    if (timeout_ms >= 0 && left <= 0) return 0;
    event_.Wait(static_cast<int>(left));
  }
}

void UringEngine::LeaveKernel(UringRequest* request) {
  request->started_ns = 0;
  if (std::exchange(request->compensated, false)) {
    --compensated_;
    SetWorkerLimit();
  }
  if (request->IsTransfer()) {
    --transfers_in_kernel_;
  } else {
    --files_in_kernel_;
    slots_.Give(std::exchange(request->slot, nullptr));
  }
}

void UringEngine::Complete(UringRequest* request) {
  ++counters_.completed;
  counters_.system_calls += request->counts.system_calls;
  counters_.short_continued += request->counts.short_continued;
  counters_.retried += request->counts.retried;
  // The request is free before the callback runs, which may submit. There is no callback when the engine is being destroyed.
  switch (request->kind) {
    case UringRequest::Kind::kFileRead: {
      const FileReadCallback done = std::exchange(request->file_done, nullptr);
      const FileReadResult result = request->file_result;
      request->file.rest.reset();
      pool_.Give(request);
      if (done) done(result);
      return;
    }
    case UringRequest::Kind::kStat: {
      const StatCallback done = std::exchange(request->stat_done, nullptr);
      const StatResult result = request->stat_result;
      pool_.Give(request);
      if (done) done(result);
      return;
    }
    case UringRequest::Kind::kReadv:
    case UringRequest::Kind::kWritev: {
      const IoCallback done = std::exchange(request->io_done, nullptr);
      const IoResult result = request->io_result;
      pool_.Give(request);
      if (done) done(result);
      return;
    }
  }
}

std::size_t UringEngine::OlderThan(std::int64_t age_ns) const {
  const std::int64_t before = CoarseNs() - age_ns;
  std::size_t count = 0;
  pool_.ForEach([&](const UringRequest& request) { count += request.started_ns != 0 && request.started_ns < before; });
  return count + (threads_ ? threads_->OlderThan(age_ns) : 0);
}

void UringEngine::CompensateHung(std::size_t count) {
  std::vector<std::pair<std::int64_t, UringRequest*>> running;
  pool_.ForEach([&](UringRequest& request) {
    if (request.started_ns != 0 && !request.compensated) running.emplace_back(request.started_ns, &request);
  });
  if (threads_ != nullptr && count > running.size()) threads_->CompensateHung(count - running.size());
  count = std::min(count, running.size());
  std::partial_sort(running.begin(), running.begin() + static_cast<std::ptrdiff_t>(count), running.end());
  for (std::size_t i = 0; i < count; ++i) running[i].second->compensated = true;
  compensated_ += count;
  SetWorkerLimit();
  // What waited for a slot gets it at the next Flush, as everything submitted does.
}

void UringEngine::SetWorkerLimit() {
  const auto wanted = static_cast<unsigned>(options_.workers + extra());
  if (wanted == workers_shared_) return;
  share_->total = share_->total - workers_shared_ + wanted;
  workers_shared_ = wanted;
  files_->SetWorkers(share_->total);
}

EngineCounters UringEngine::counters() const {
  EngineCounters all = counters_;
  all.system_calls += transfers_->enters() + files_->enters();
  if (threads_ == nullptr) return all;
  const EngineCounters theirs = threads_->counters();
  all.submitted += theirs.submitted;
  all.completed += theirs.completed;
  all.system_calls += theirs.system_calls;
  all.short_continued += theirs.short_continued;
  all.retried += theirs.retried;
  return all;
}

}  // namespace tierd::io
