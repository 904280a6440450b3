#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "tierd/base/check.h"
#include "tierd/source/source_reader_impl.h"

namespace tierd::source {
namespace {

// True for as long as callbacks run, however they end.
class Polling {
 public:
  explicit Polling(bool& flag) : flag_(flag) { flag_ = true; }
  ~Polling() { flag_ = false; }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

 private:
  bool& flag_;
};

// Probes beyond the hung cap that may hang too; each further one waits twice as long, up to kLongestProbeWait intervals.
constexpr std::uint32_t kProbesAtOnce = 512 - kMostHung;
constexpr std::int64_t kLongestProbeWait = 64;
// Requests that one turn may refuse for want of memory. They take no slot of the window, and to find out that there is none may take a look at
// the leases of all sessions (0.2 ms at 1,000).
constexpr int kRefusalsAtOnce = 16;

io::EngineKind PreferredEngine(const SourceOptions& options, const FsKind& fs) {
  if (options.engine) return *options.engine;
  // Opens on network file systems block in the kernel either way; plain threads do it with less overhead there.
  return fs.is_network ? io::EngineKind::kThreads : io::EngineKind::kUring;
}

// Two processors were busy with 128 requests of 4 ms in flight; more threads only got in each other's way.
std::uint32_t UsualWindow() { return std::clamp(64 * std::thread::hardware_concurrency(), 128U, 384U); }

SourceOptions Bounded(SourceOptions options) {
  if (options.window_max == 0) options.window_max = UsualWindow();
  options.window_max = std::clamp<std::uint32_t>(options.window_max, 1, 448);
  options.window_min = std::clamp<std::uint32_t>(options.window_min, 1, options.window_max);
  options.window_start = std::clamp(options.window_start, options.window_min, options.window_max);
  options.demand_reserve = std::clamp<std::uint32_t>(options.demand_reserve, 1, 64);
  options.hung_cap = std::clamp<std::uint32_t>(options.hung_cap, 1, kMostHung);
  options.version_attempts = std::clamp<std::uint32_t>(options.version_attempts, 1, 10);
  return options;
}

}  // namespace

Result<std::unique_ptr<SourceReader>> SourceReader::Create(std::shared_ptr<const Source> source, EngineFactory factory,
                                                           const Clock& clock, const SourceOptions& options) {
  auto reader = std::make_unique<SourceReaderImpl>(std::move(source), std::move(factory), clock, options);
  if (Status status = reader->Start(); !status.ok()) return status;
  return std::unique_ptr<SourceReader>(std::move(reader));
}

SourceReaderImpl::SourceReaderImpl(std::shared_ptr<const Source> source, EngineFactory factory, const Clock& clock,
                                   const SourceOptions& options)
    : source_(std::move(source)),
      factory_(std::move(factory)),
      clock_(clock),
      options_(Bounded(options)),
      request_budget_(std::make_shared<RequestBudget>(options.requests_per_second)),
      window_(options_.window_min, options_.window_start, options_.window_max),
      byte_budget_(options.bytes_per_second),
      stamps_(options.racy_window_ns),
      trial_(PreferredEngine(options, source_->fs())),
      probe_wait_ns_(options.probe_interval_ns) {}

Status SourceReaderImpl::Start() {
  epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return Status::FromErrno(errno, "epoll_create1");
  wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Status::FromErrno(errno, "eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) return Status::FromErrno(errno, "epoll_ctl");
  last_completion_ns_ = clock_.PreciseNs();

  const io::EngineKind preferred = trial_.current();
  Status status = MakeEngine(preferred);
  if (options_.engine) {
    trial_.Abort("forced by the configuration");
  } else if (!status.ok() && preferred == io::EngineKind::kUring) {
    const std::string why = status.message();
    status = MakeEngine(io::EngineKind::kThreads);
    trial_ = EngineTrial(io::EngineKind::kThreads);
    trial_.Abort("io_uring cannot be used: " + why);
  }
  return status;
}

Status SourceReaderImpl::MakeEngine(io::EngineKind kind) {
  io::EngineOptions engine_options;
  const unsigned at_once = options_.window_max + options_.demand_reserve;
  engine_options.workers = std::min(512U, at_once);
  engine_options.max_replacements = options_.hung_cap + kProbesAtOnce;
  engine_options.depth = at_once + engine_options.max_replacements;
  Result<std::unique_ptr<io::IoEngine>> engine = factory_(kind, engine_options);
  if (!engine.ok()) return engine.status();
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, engine.value()->event_fd(), &event) != 0) {
    return Status::FromErrno(errno, "epoll_ctl");
  }
  engines_[static_cast<std::size_t>(kind)] = std::move(engine).value();
  return Status::Ok();
}

void SourceReaderImpl::MaybeStartTrial() {
  // Enough work for a turn, so that a trial seldom starts in vain: whoever brings a tree up keeps a few hundred waiting, and adds to them.
  constexpr std::size_t kEnough = EngineTrial::kMeasured;
  if (!trial_.ready() || !window_.settled() || Waiting() < kEnough || hung_ > 0) return;
  for (const io::EngineKind kind : {io::EngineKind::kUring, io::EngineKind::kThreads}) {
    if (engines_[static_cast<std::size_t>(kind)] != nullptr) continue;
    if (Status status = MakeEngine(kind); !status.ok()) {
      trial_.Abort(std::string(EngineKindName(kind)) + " cannot be used: " + status.message());
      return;
    }
  }
  trial_.Start(window_.size());
}

void SourceReaderImpl::RetireIdleEngine() {
  if (!trial_.decided()) return;
  const std::size_t in_use = static_cast<std::size_t>(trial_.current());
  std::unique_ptr<io::IoEngine>& other = engines_[1 - in_use];
  if (other == nullptr || other->in_flight() != 0) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, other->event_fd(), nullptr);
  other.reset();
}

void SourceReaderImpl::Signal() {
  if (signalled_) return;
  signalled_ = true;
  const std::uint64_t one = 1;
  // An eventfd of ours takes this write unless 2^64 - 1 others came before.
  TIERD_CHECK(::write(wake_.get(), &one, sizeof one) == sizeof one);
}

RequestId SourceReaderImpl::Read(ReadRequest request) {
  TIERD_CHECK(request.capacity > 0 && (request.buffer != nullptr || request.acquire));
  auto op = std::make_unique<Operation>();
  op->read = std::move(request);
  return Enqueue(std::move(op));
}

RequestId SourceReaderImpl::Stat(StatQuery query) {
  auto op = std::make_unique<Operation>();
  op->is_stat = true;
  op->opens = query.open;
  op->read.path = std::move(query.path);
  op->read.priority = query.priority;
  op->read.deadline_ns = query.deadline_ns;
  op->stat_done = std::move(query.done);
  return Enqueue(std::move(op));
}

RequestId SourceReaderImpl::Enqueue(std::unique_ptr<Operation> op) {
  const std::uint64_t number = ++last_id_;
  op->id = RequestId{number};
  const Priority priority = op->read.priority;
  ReadError refusal = ReadError::kNone;
  if (stopped_) {
    refusal = ReadError::kStopped;
  } else if (priority == Priority::kDemand && Refusing() && (queued_[0] > 0 || !ProbeDue(clock_.PreciseNs()))) {
    refusal = ReadError::kHung;
  } else if (Waiting() >= options_.queue_max) {
    refusal = priority == Priority::kDemand ? ReadError::kHung : ReadError::kNoBuffer;
  }
  if (refusal != ReadError::kNone) {
    ReadResult result;
    result.error = refusal;
    if (refusal == ReadError::kHung) ++counters_.refused_hung;
    finished_.push_back(Finished{std::move(op), result});
    Signal();
    return RequestId{number};
  }
  // In this order: where memory runs out in between, the operation is either unknown, or queued like any other but for its deadline.
  const std::int64_t deadline_ns = op->read.deadline_ns;
  queues_[static_cast<std::size_t>(priority)].push_back(number);
  operations_.emplace(number, std::move(op));
  ++queued_[static_cast<std::size_t>(priority)];
  if (deadline_ns != 0) deadlines_.emplace(deadline_ns, number);
  return RequestId{number};
}

void SourceReaderImpl::Promote(RequestId id, Priority priority, std::int64_t deadline_ns) {
  const auto number = static_cast<std::uint64_t>(id);
  const auto found = operations_.find(number);
  if (found == operations_.end() || found->second->abandoned) return;
  Operation& op = *found->second;
  if (deadline_ns != 0 && op.read.deadline_ns == 0) {
    deadlines_.emplace(deadline_ns, number);
    op.read.deadline_ns = deadline_ns;
  }
  if (priority >= op.read.priority) return;
  if (!op.in_flight) {
    queues_[static_cast<std::size_t>(priority)].push_back(number);
    --queued_[static_cast<std::size_t>(op.read.priority)];
    ++queued_[static_cast<std::size_t>(priority)];
  }
  op.read.priority = priority;
  if (!op.in_flight && priority == Priority::kDemand && Refusing() && !ProbeDue(clock_.PreciseNs())) {
    ++counters_.refused_hung;
    EndLater(op, ReadError::kHung);
  }
}

bool SourceReaderImpl::Cancel(RequestId id) {
  const auto found = operations_.find(static_cast<std::uint64_t>(id));
  if (found == operations_.end() || found->second->in_flight || found->second->sent_ns != 0) return false;
  Extract(*found->second);
  return true;
}

Operation* SourceReaderImpl::Front(std::size_t priority) {
  std::deque<std::uint64_t>& queue = queues_[priority];
  while (!queue.empty()) {
    const auto found = operations_.find(queue.front());
    // Cancelled, timed out, promoted to another queue or sent from there.
    if (found != operations_.end() && !found->second->in_flight &&
        static_cast<std::size_t>(found->second->read.priority) == priority) {
      return found->second.get();
    }
    queue.pop_front();
  }
  return nullptr;
}

bool SourceReaderImpl::ProbeDue(std::int64_t now_ns) const {
  return probes_ < kProbesAtOnce && now_ns - last_probe_ns_ >= probe_wait_ns_;
}

bool SourceReaderImpl::ProbesOnly(bool low, std::int64_t now_ns) const {
  // Nobody waits for the low ones: they must not be what fills the cap, and stay away from a source that gives no answer.
  const bool silent = hung_ > 0 && now_ns - last_completion_ns_ >= options_.probe_interval_ns;
  return Refusing() || (low && (silent || hung_ >= (options_.hung_cap + 1) / 2));
}

SourceReaderImpl::Admission SourceReaderImpl::Admit(std::size_t priority, std::int64_t now_ns) {
  const bool low = priority != static_cast<std::size_t>(Priority::kDemand);
  // Kept, as others take from it and fill it up meanwhile: what is to be done at a time must be known then.
  send_at_ns_ = std::max(paused_until_ns_, request_budget_->AllowedAt(now_ns, low));
  if (send_at_ns_ <= now_ns) send_at_ns_ = 0;
  if (!byte_budget_.Allows(low) || send_at_ns_ != 0) return Admission::kWait;
  if (ProbesOnly(low, now_ns)) return ProbeDue(now_ns) ? Admission::kProbe : Admission::kWait;
  const std::uint32_t limit = window_.size() + (low ? 0 : options_.demand_reserve);
  return in_flight_ < limit ? Admission::kSend : Admission::kWait;
}

void SourceReaderImpl::StartProbe(Operation& op, std::int64_t now_ns) {
  op.probe = true;
  ++probes_;
  // The last one got no answer: each probe that hangs holds one more buffer.
  if (last_probe_ns_ > last_completion_ns_) {
    probe_wait_ns_ = std::min(probe_wait_ns_ * 2, options_.probe_interval_ns * kLongestProbeWait);
  }
  last_probe_ns_ = now_ns;
}

void SourceReaderImpl::Dispatch() {
  const std::int64_t now_ns = clock_.PreciseNs();
  byte_budget_.Refill(now_ns);
  (void)request_budget_->AllowedAt(now_ns, false);  // fills it up, too
  MaybeStartTrial();
  int refusals = 0;
  for (std::size_t priority = 0; priority < kPriorities;) {
    Operation* op = Front(priority);
    if (op == nullptr) {
      ++priority;
      continue;
    }
    const Admission admission = Admit(priority, now_ns);
    if (admission == Admission::kWait) return;  // what holds this one back holds back the lower ones too
    if (admission == Admission::kProbe) StartProbe(*op, now_ns);
    LeaveQueue(*op);
    // One says nothing of the next, which may be smaller or another's to admit; they go on in the turn that tells these (EndLater).
    if (!Send(*op) && ++refusals == kRefusalsAtOnce) return;
    priority = 0;  // it may have asked for more
  }
}

void SourceReaderImpl::LeaveQueue(Operation& op) { --queued_[static_cast<std::size_t>(op.read.priority)]; }

bool SourceReaderImpl::UseDirect(const Operation& op) const {
  const ReadRequest& read = op.read;
  const std::uint64_t alignment = source_->direct_alignment();
  // A piece from inside a file is small only at its end, and the others of that file are read like that too.
  if (!options_.direct || alignment == 0 || direct_refused_ || op.plain || (read.capacity < options_.direct_min_bytes && read.offset == 0)) return false;
  std::uint64_t bits = reinterpret_cast<std::uintptr_t>(read.buffer) | read.offset | read.capacity;
  for (const iovec& piece : read.further) bits |= reinterpret_cast<std::uintptr_t>(piece.iov_base) | piece.iov_len;
  return (bits & (alignment - 1)) == 0 && !DirectRefused(read.path);
}

bool SourceReaderImpl::Send(Operation& op) {
  if (!op.is_stat && op.read.buffer == nullptr) {
    op.in_flight = true;  // no longer queued
    if (!op.read.acquire(op.read)) {
      if (std::exchange(op.probe, false)) --probes_;  // nothing was asked
      EndLater(op, ReadError::kNoBuffer);
      return false;
    }
  }
  op.in_flight = true;
  op.engine = trial_.current();
  op.sent_ns = clock_.PreciseNs();
  op.sent_real_ns = clock_.RealtimeNs();
  op.charged = op.is_stat ? 0 : static_cast<std::int64_t>(op.read.capacity + io::TotalBytes(op.read.further));
  byte_budget_.Take(op.charged);
  request_budget_->Take();
  ++in_flight_;
  flight_.Append(&op);
  ++counters_.sent[static_cast<std::size_t>(op.read.priority)];
  try {
    if (op.opens) SubmitOpen(op, EngineFor(op.engine));
    else if (op.is_stat) SubmitStat(op, EngineFor(op.engine));
    else SubmitRead(op, EngineFor(op.engine));
  } catch (const std::bad_alloc&) {  // nobody was asked
    flight_.Remove(&op);
    --in_flight_;
    byte_budget_.Take(-op.charged);
    if (std::exchange(op.probe, false)) --probes_;
    EndLater(op, ReadError::kTimeout);
  }
  return true;
}

void SourceReaderImpl::SubmitRead(Operation& op, io::IoEngine& engine) {
  io::FileReadRequest request;
  request.root_fd = source_->root_fd();
  request.root_mount = source_->root_mount();
  request.path = op.read.path;
  request.offset = op.read.offset;
  request.buffer = op.read.buffer;
  request.capacity = op.read.capacity;
  request.further = op.read.further;
  request.rest = op.read.rest;
  request.direct = UseDirect(op);
  request.drop_cache = !source_->fs().is_memory;
  const auto number = static_cast<std::uint64_t>(op.id);
  engine.SubmitFileRead(std::move(request), [this, number](const io::FileReadResult& r) { OnRead(number, r); });
}

void SourceReaderImpl::SubmitStat(Operation& op, io::IoEngine& engine) {
  io::StatRequest request;
  request.root_fd = source_->root_fd();
  request.root_mount = source_->root_mount();
  request.path = op.read.path;
  const auto number = static_cast<std::uint64_t>(op.id);
  engine.SubmitStat(std::move(request), [this, number](const io::StatResult& r) { OnStat(number, r); });
}

void SourceReaderImpl::SubmitOpen(Operation& op, io::IoEngine& engine) {
  io::FileReadRequest request;
  request.root_fd = source_->root_fd();
  request.root_mount = source_->root_mount();
  request.path = op.read.path;
  request.drop_cache = false;
  const auto number = static_cast<std::uint64_t>(op.id);
  engine.SubmitFileRead(std::move(request), [this, number](const io::FileReadResult& r) { OnOpened(number, r); });
}

void SourceReaderImpl::Flush() {
  if (polling_) return;  // Poll does it when the callbacks are done
  Dispatch();
  for (const auto& engine : engines_) {
    if (engine != nullptr) engine->Flush();
  }
}

std::size_t SourceReaderImpl::Poll(std::size_t budget) {
  if (signalled_) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);  // EAGAIN cannot be: we wrote it
    signalled_ = false;
  }
  std::size_t ran = 0;
  {
    const Polling polling(polling_);
    ran = Deliver(budget);
    for (const auto& engine : engines_) {
      if (engine != nullptr && ran < budget) ran += engine->Poll(budget - ran);
    }
    if (ran < budget) ran += Deliver(budget - ran);
  }
  if (!finished_.empty()) Signal();
  RetireIdleEngine();
  Flush();
  return ran;
}

void SourceReaderImpl::Tick(std::int64_t now_ns) {
  {
    const Polling polling(polling_);
    while (!deadlines_.empty() && deadlines_.begin()->first <= now_ns) {
      const auto found = operations_.find(deadlines_.begin()->second);
      deadlines_.erase(deadlines_.begin());
      TIERD_CHECK(found != operations_.end());
      Expire(*found->second);
    }
    while (flight_.oldest() != nullptr && now_ns - flight_.oldest()->sent_ns >= options_.hung_after_ns) {
      Declare(*flight_.oldest());
    }
  }
  Flush();
}

// When time alone lets the next request go. INT64_MAX: only a completion can, or nothing holds it back.
std::int64_t SourceReaderImpl::NextSendNs() const {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const bool low = queued_[0] == 0;
  std::int64_t at = 0;
  if (!byte_budget_.Allows(low)) at = byte_budget_.AllowedAt(low);
  at = std::max(at, send_at_ns_);
  if (ProbesOnly(low, clock_.PreciseNs())) {
    if (probes_ >= kProbesAtOnce) return kNever;
    at = std::max(at, last_probe_ns_ + probe_wait_ns_);
  }
  return at == 0 ? kNever : at;
}

std::int64_t SourceReaderImpl::next_tick_ns() const {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  if (!deadlines_.empty()) next = deadlines_.begin()->first;
  if (flight_.oldest() != nullptr) next = std::min(next, flight_.oldest()->sent_ns + options_.hung_after_ns);
  if (Waiting() > 0) next = std::min(next, NextSendNs());
  return next;
}

std::size_t SourceReaderImpl::Stop(int timeout_ms) {
  stopped_ = true;
  for (std::size_t priority = 0; priority < kPriorities; ++priority) {
    while (Operation* op = Front(priority)) EndLater(*op, ReadError::kStopped);
  }
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  Poll(std::numeric_limits<std::size_t>::max());
  while (in_flight_ + hung_ > 0 && steady_clock::now() < until) {
    pollfd waiting{epoll_.get(), POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now()).count();
    ::poll(&waiting, 1, static_cast<int>(left) + 1);
    Poll(std::numeric_limits<std::size_t>::max());
  }
  std::size_t running = 0;
  for (const auto& [number, op] : operations_) {
    ++running;
    if (op->abandoned) continue;
    deadlines_.erase({op->read.deadline_ns, number});
    op->abandoned = true;
    ReadResult result;
    result.error = ReadError::kStopped;
    result.buffer = op->read.buffer;
    result.buffer_held = !op->is_stat;
    Call(*op, result);
  }
  return running;
}

void SourceReaderImpl::SetBudgets(std::uint64_t bytes_per_second, std::uint64_t requests_per_second) {
  byte_budget_.SetRate(bytes_per_second);
  request_budget_->SetRate(requests_per_second);
}

bool SourceReaderImpl::IsYoung(const io::FileStat& stat, std::int64_t stat_sent_ns) const {
  return stamps_.IsYoung(stat, clock_.RealtimeNs() - (clock_.PreciseNs() - stat_sent_ns));
}

void SourceReaderImpl::NoteChange(std::int64_t seen_ns, const io::FileStat& now_is) {
  stamps_.NoteChange(seen_ns, clock_.RealtimeNs(), now_is.ctime_ns);
}

}  // namespace tierd::source
