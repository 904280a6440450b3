#include "tierd/io/thread_engine.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "tierd/base/check.h"
#include "tierd/base/handoff.h"
#include "tierd/io/completion_event.h"
#include "tierd/io/file_access.h"
#include "tierd/io/mount_of.h"

namespace tierd::io {
namespace {

// Deep enough for a path walk and the sanitizers' frames, small beside 512 of the default 8 MiB.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;
// How long the destructor lets busy workers finish, so that only hung ones are left behind.
constexpr auto kGrace = std::chrono::milliseconds(200);

template <typename Item>
void Move(Handoff<Item>& from, RequestQueue<Item>& to) {
  for (Item* at = from.TakeAll(); at != nullptr;) to.Push(std::exchange(at, at->next));
}

}  // namespace

struct ThreadEngine::Request {
  enum class Kind : std::uint8_t { kFileRead, kStat, kReadv, kWritev };

  // Written by the loop thread before the handoff, by the worker until it hands back.
  Kind kind = Kind::kFileRead;
  FileReadRequest file;
  FileReadResult file_result;
  StatRequest stat;
  StatResult stat_result;
  int fd = -1;
  unsigned iov_count = 0;
  iovec iov[kMaxIov] = {};
  std::uint64_t offset = 0;
  IoResult io_result;
  StepCounts counts;

  // When a worker took it; 0 while none has it. Guards itself.
  std::atomic<std::int64_t> started_ns{0};

  // Owned by the loop thread, also while a worker has the rest.
  FileReadCallback file_done;
  StatCallback stat_done;
  IoCallback io_done;
  bool compensated = false;

  // Of the queue or handoff that holds it.
  Request* next = nullptr;
};

// The loop takes no lock that a worker holds: one that was put off its processor just then would keep it waiting for milliseconds (measured, with 64 of them on two processors).
struct ThreadEngine::State {
  explicit State(int event_fd) : event(event_fd < 0 ? CompletionEvent() : CompletionEvent(event_fd)) { ::sem_init(&wake, 0, 0); }
  ~State() { ::sem_destroy(&wake); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  AccessContext context;
  CompletionEvent event;
  // Memory of all requests. Take and Give on the loop thread only.
  RequestPool<Request> pool;

  Handoff<Request> sent;             // from the loop to the workers
  Handoff<Request> done;             // and back
  sem_t wake;                        // a turn for each of the idle that was claimed
  std::atomic<unsigned> idle{0};     // workers that sleep, or are about to look once more and sleep, and are not claimed
  std::atomic<unsigned> live{0};
  std::atomic<unsigned> limit{0};
  std::atomic<bool> stop{false};

  std::mutex mutex;               // the workers'
  std::condition_variable ended;  // a worker left
  RequestQueue<Request> queue;    // guarded by mutex

  // Takes one of the idle for its own: who does wakes it, or is it. Sleepers are alike.
  bool ClaimIdle() {
    unsigned count = idle.load();
    while (count > 0) {
      if (idle.compare_exchange_weak(count, count - 1)) return true;
    }
    return false;
  }
  bool WakeOne() { return ClaimIdle() && ::sem_post(&wake) == 0; }
  void Sleep() {
    while (::sem_wait(&wake) != 0) {
    }
  }
  // Counts one worker more, where there may be one.
  bool AddWorker() {
    unsigned count = live.load();
    while (count < limit.load()) {
      if (live.compare_exchange_weak(count, count + 1)) return true;
    }
    return false;
  }
  // Counts one less, where there are too many.
  bool IsSurplus() {
    unsigned count = live.load();
    while (count > limit.load()) {
      if (live.compare_exchange_weak(count, count - 1)) return true;
    }
    return false;
  }
  bool HasWork() const { return !queue.empty() || !sent.empty() || stop; }  // under the mutex
};

Result<std::unique_ptr<IoEngine>> ThreadEngine::Create(const EngineOptions& options, int event_fd) {
  std::unique_ptr<ThreadEngine> engine(new ThreadEngine(options, event_fd));
  if (!engine->state_->event.valid()) return Status::FromErrno(engine->state_->event.error(), "eventfd for the I/O threads");
  // One worker at least, so that requests always progress however few threads the system grants later.
  engine->state_->live = 1;
  if (!StartWorker(engine->state_)) return Status(Code::kNoSpace, "no I/O thread can be started; raise the limit of processes (ulimit -u)");
  return Result<std::unique_ptr<IoEngine>>(std::move(engine));
}

ThreadEngine::ThreadEngine(const EngineOptions& options, int event_fd) : options_(options), state_(std::make_shared<State>(event_fd)) {
  state_->context.faults = options.faults;
  state_->context.has_openat2 = ProbeOpenat2();
  state_->context.statx_tells_mounts = StatxTellsMounts();
  state_->limit = options.workers;
}

ThreadEngine::~ThreadEngine() {
  state_->stop = true;
  state_->WakeOne();  // each that leaves wakes the next: this may be the loop thread, and they many
  if (in_flight() != 0) {
    std::unique_lock lock(state_->mutex);
    const auto deadline = std::chrono::system_clock::now() + kGrace;
    // The last worker may still be giving its State back; the descriptor goes now.
    if (state_->ended.wait_until(lock, deadline, [this] { return state_->live == 0; })) state_->event.Close();
  }
  // Idle ones are not waited for: they touch State alone, which the last one takes with it, the event too: one of them may be about to signal.
  // What callbacks captured must not be destroyed by a worker that ends later.
  state_->pool.ForEach([](Request& request) {
    request.file_done = nullptr;
    request.stat_done = nullptr;
    request.io_done = nullptr;
  });
}

int ThreadEngine::event_fd() const { return state_->event.fd(); }

ThreadEngine::Request* ThreadEngine::NewRequest() {
  Request* request = state_->pool.Take();
  request->counts = StepCounts();
  request->compensated = false;
  unsent_.Push(request);
  ++counters_.submitted;
  return request;
}

void ThreadEngine::SubmitFileRead(FileReadRequest request, FileReadCallback done) {
  Request* r = NewRequest();
  r->kind = Request::Kind::kFileRead;
  TIERD_CHECK(request.further.size() <= FileReadRequest::kMaxFurther && (request.further.empty() || request.rest == nullptr));
  r->file = std::move(request);
  r->file_done = std::move(done);
}

void ThreadEngine::SubmitStat(StatRequest request, StatCallback done) {
  Request* r = NewRequest();
  r->kind = Request::Kind::kStat;
  r->stat = std::move(request);
  r->stat_done = std::move(done);
}

void ThreadEngine::SubmitReadv(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) {
  Request* r = NewRequest();
  r->kind = Request::Kind::kReadv;
  SubmitTransfer(r, fd, iov, offset, std::move(done));
}

void ThreadEngine::SubmitWritev(int fd, std::span<const iovec> iov, std::uint64_t offset, IoCallback done) {
  Request* r = NewRequest();
  r->kind = Request::Kind::kWritev;
  SubmitTransfer(r, fd, iov, offset, std::move(done));
}

void ThreadEngine::SubmitTransfer(Request* request, int fd, std::span<const iovec> iov, std::uint64_t offset,
                                  IoCallback done) {
  TIERD_CHECK(iov.size() <= kMaxIov);
  std::copy(iov.begin(), iov.end(), request->iov);
  request->iov_count = static_cast<unsigned>(iov.size());
  request->fd = fd;
  request->offset = offset;
  request->io_done = std::move(done);
}

void ThreadEngine::Flush() {
  if (unsent_.empty()) return;
  while (!unsent_.empty()) state_->sent.Push(unsent_.Pop());
  // One is woken or started here; it does the same for the next if more waits, so that this thread does not pay for 64. If all are at work, whoever is done next looks.
  if (!state_->WakeOne() && state_->AddWorker()) StartWorker(state_);
}

std::size_t ThreadEngine::Poll(std::size_t budget) {
  state_->event.Clear();
  std::size_t ran = 0;
  while (MoreReady() && ran < budget) {
    Complete(ready_.Pop());
    ++ran;
  }
  // What the budget left asks for another turn.
  if (MoreReady()) state_->event.Signal();
  if (ran > 0) Flush();
  return ran;
}

bool ThreadEngine::MoreReady() {
  if (ready_.empty()) Move(state_->done, ready_);
  return !ready_.empty();
}

std::size_t ThreadEngine::Wait(int timeout_ms, std::size_t budget) {
  Flush();
  if (const std::size_t ran = Poll(budget); ran > 0 || in_flight() == 0) return ran;
  // The event may still be signalled for completions that ran already: an empty look is no reason to give up early.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return Poll(budget);
    state_->event.Wait(static_cast<int>(left));
    if (const std::size_t ran = Poll(budget); ran > 0) return ran;
  }
}

void ThreadEngine::Complete(Request* request) {
  ++counters_.completed;
  counters_.system_calls += request->counts.system_calls;
  counters_.short_continued += request->counts.short_continued;
  counters_.retried += request->counts.retried;
  if (request->compensated) {
    --compensated_;
    SetWorkerLimit();
  }
  // The request is free before the callback runs, which may submit.
  switch (request->kind) {
    case Request::Kind::kFileRead: {
      const FileReadCallback done = std::exchange(request->file_done, nullptr);
      const FileReadResult result = request->file_result;
      request->file.rest.reset();
      state_->pool.Give(request);
      return done(result);
    }
    case Request::Kind::kStat: {
      const StatCallback done = std::exchange(request->stat_done, nullptr);
      const StatResult result = request->stat_result;
      state_->pool.Give(request);
      return done(result);
    }
    case Request::Kind::kReadv:
    case Request::Kind::kWritev: {
      const IoCallback done = std::exchange(request->io_done, nullptr);
      const IoResult result = request->io_result;
      state_->pool.Give(request);
      return done(result);
    }
  }
}

std::size_t ThreadEngine::OlderThan(std::int64_t age_ns) const {
  const std::int64_t before = CoarseNs() - age_ns;
  std::size_t count = 0;
  state_->pool.ForEach([&](const Request& request) {
    const std::int64_t started = request.started_ns.load(std::memory_order_relaxed);
    count += started != 0 && started < before;
  });
  return count;
}

void ThreadEngine::CompensateHung(std::size_t count) {
  std::vector<std::pair<std::int64_t, Request*>> running;
  state_->pool.ForEach([&](Request& request) {
    const std::int64_t started = request.started_ns.load(std::memory_order_relaxed);
    if (started != 0 && !request.compensated) running.emplace_back(started, &request);
  });
  count = std::min(count, running.size());
  std::partial_sort(running.begin(), running.begin() + static_cast<std::ptrdiff_t>(count), running.end());
  for (std::size_t i = 0; i < count; ++i) running[i].second->compensated = true;
  compensated_ += count;
  SetWorkerLimit();
}

void ThreadEngine::SetWorkerLimit() {
  const auto extra = static_cast<unsigned>(std::min<std::size_t>(compensated_, options_.max_replacements));
  state_->limit = options_.workers + extra;
  // Surplus workers leave when they are idle; requests that wait get theirs now.
  for (unsigned live = state_->live; live > state_->limit && state_->WakeOne(); --live) {
  }
  bool waits = false;
  {
    std::lock_guard lock(state_->mutex);
    waits = state_->HasWork();
  }
  if (waits && !state_->WakeOne() && state_->AddWorker()) StartWorker(state_);
}

// The caller has counted the worker in `live`; taken back if there is no memory or no thread for it (those that live go on).
bool ThreadEngine::StartWorker(const std::shared_ptr<State>& state) {
  std::unique_ptr<std::shared_ptr<State>> owner(new (std::nothrow) std::shared_ptr<State>(state));  // a worker calls this too: it may not throw
  if (owner == nullptr) {
    --state->live;
    return false;
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // Signals are for the loop thread: a new thread inherits a mask that blocks them.
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, &ThreadEngine::WorkerMain, owner.get());
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  pthread_attr_destroy(&attributes);
  if (error == 0) {
    owner.release();
    return true;
  }
  --state->live;
  return false;
}

void* ThreadEngine::WorkerMain(void* state) {
  const std::unique_ptr<std::shared_ptr<State>> owner(static_cast<std::shared_ptr<State>*>(state));
  pthread_setname_np(pthread_self(), "tierd-io");
  Work(*owner);
  return nullptr;
}

void ThreadEngine::Work(const std::shared_ptr<State>& state) {
  State& s = *state;
  std::unique_lock lock(s.mutex);
  bool surplus = false;
  while (!s.stop && !(surplus = s.IsSurplus())) {
    Move(s.sent, s.queue);
    if (s.queue.empty()) {
      // What is sent after this look finds an idle worker.
      ++s.idle;
      const bool stays = s.HasWork() && s.ClaimIdle();
      lock.unlock();
      if (!stays) s.Sleep();
      lock.lock();
      continue;
    }
    Request* request = s.queue.Pop();
    const bool more = !s.queue.empty();
    lock.unlock();
    if (more && !s.WakeOne() && s.AddWorker()) StartWorker(state);
    Execute(s, *request);
    if (s.done.Push(request)) s.event.Signal();
    lock.lock();
  }
  // A surplus worker passes on the wake-up that it may have taken from one that stays.
  if (s.HasWork()) s.WakeOne();
  if (!surplus) --s.live;
  s.ended.notify_one();
}

void ThreadEngine::Execute(State& state, Request& request) {
  request.started_ns.store(CoarseNs(), std::memory_order_relaxed);
  switch (request.kind) {
    case Request::Kind::kFileRead:
      request.file_result = ReadFile(state.context, request.file, &request.counts);
      break;
    case Request::Kind::kStat:
      request.stat_result = StatPath(state.context, request.stat, &request.counts);
      break;
    case Request::Kind::kReadv:
    case Request::Kind::kWritev: {
      const Step step = request.kind == Request::Kind::kReadv ? Step::kReadv : Step::kWritev;
      request.io_result =
          Transfer(state.context, step, request.fd, {request.iov, request.iov_count}, request.offset, &request.counts);
      break;
    }
  }
  request.started_ns.store(0, std::memory_order_relaxed);
}

}  // namespace tierd::io
