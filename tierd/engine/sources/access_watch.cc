#include "tierd/engine/sources/access_watch.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "tierd/base/unique_fd.h"

namespace tierd::engine {
namespace {

constexpr std::uint8_t kFromSource = 2, kAround = 3;

std::uint64_t ChunkKey(abi::FileKey key, std::uint32_t chunk) { return key.lo ^ abi::Mix64(key.hi + chunk); }

// Blocks.
Result<std::unique_ptr<sim::TraceFile>> OpenTrace(const AccessWatch::TraceOrder& order) {
  const std::filesystem::path path(order.path);
  const std::string parent = path.parent_path().string();
  const UniqueFd directory(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return Status::FromErrno(errno, parent);
  std::vector<DirectoryIdentity> roots;
  for (const AccessWatch::TraceRoot& root : order.roots) roots.push_back(root.identity);
  const auto root = RootOf(directory.get(), roots);
  if (!root.ok()) return root.status();
  if (root->has_value()) return Status(Code::kInvalid, order.path + " is below the source " + order.roots[**root].path + ": nothing is written there");
  // In the directory that was looked at, whatever has its name by now.
  return sim::TraceFile::Create(directory.get(), path.filename().string(), order.path);
}

}  // namespace

Regret RegretOf(const EpochCounter::Epoch& epoch, std::uint64_t capacity_bytes, std::uint64_t brought_bytes) {
  const std::uint64_t distinct = std::min(epoch.file_bytes, epoch.read_bytes);
  return {.source_bytes = brought_bytes + epoch.bytes[kAround], .least_bytes = distinct - std::min(distinct, capacity_bytes)};
}

AccessWatch::AccessWatch(Workers& workers, const Tiers& tiers, std::function<SourceBytes()> source_bytes) : workers_(workers), tiers_(tiers), source_bytes_(std::move(source_bytes)) {}

void AccessWatch::OnRead(const Read& read, const EpochCounter& epochs) {
  Begin(tiers_.resident_bytes);
  ++reads_;
  if (epochs.ended() != ended_) NoteEpoch(epochs);
  if (epochs.last_was_new()) {
    const SourceBytes bytes = source_bytes_();
    brought_ = std::max(brought_, bytes.read - std::min(bytes.read, bytes.unread));
  }
  const auto epoch = static_cast<std::uint32_t>(ended_);
  if (trace_) {
    trace_->recorder.Note({.key = ChunkKey(read.key, read.chunk), .file_key = read.key.lo, .chunk = read.chunk, .bytes = read.bytes, .consumer = read.consumer, .time_ns = read.time_ns, .epoch = epoch});
    Pump(false);
  }
  if (!hindsight_ && ended_ > 0 && read.tier >= kFromSource) hindsight_.emplace(tiers_.capacity(), sample_.share());
  if ((hindsight_ || !ghosts_.empty()) && sample_.Takes(read.key.hi)) Compare(read, epoch);
}

void AccessWatch::Compare(const Read& read, std::uint32_t epoch) {
  const std::uint32_t id = sample_.IdOf(ChunkKey(read.key, read.chunk));
  if (id == sim::Sample::kNotTaken) return Restart();
  const sim::StreamRead seen{.id = id, .bytes = read.bytes, .consumer = read.consumer, .missed = read.tier >= kFromSource, .epoch = epoch};
  for (GhostSeat& seat : ghosts_) seat.ghost.Read(seen);
  if (hindsight_) hindsight_->Read(seen);
}

void AccessWatch::NoteEpoch(const EpochCounter& epochs) {
  const EpochCounter::Epoch& epoch = epochs.last_ended();
  const std::uint64_t brought_now = brought_ - std::exchange(brought_before_, brought_);
  PastEpoch past{.number = ended_, .regret = RegretOf(epoch, ended_ == 0 ? resident_at_start_ : tiers_.capacity(), brought_now), .source_reads = epoch.reads[kFromSource] + epoch.reads[kAround]};
  ended_ = epochs.ended();
  // What is read too much in one epoch cannot be made good for by another.
  regret_.source_bytes += past.regret.source_bytes;
  regret_.least_bytes += std::min(past.regret.source_bytes, past.regret.least_bytes);
  past_.push_back(past);
  if (past_.size() > kEpochsKept) past_.pop_front();
}

sim::Hindsight::Epoch AccessWatch::judged() const {
  sim::Hindsight::Epoch sum;
  if (!hindsight_) return sum;
  for (const sim::Hindsight::Epoch& epoch : hindsight_->epochs()) sum.reads += epoch.reads, sum.missed += epoch.missed, sum.least += epoch.least;
  return sum;
}

// Another share, or tiers of another size: what was compared does not go with what will be.
void AccessWatch::Restart() {
  hindsight_.reset();
  std::vector<GhostSeat> ghosts;
  for (const GhostSeat& seat : ghosts_) {
    Result<sim::Ghost> ghost = MakeGhost(*seat.policy, seat.parameters);
    if (ghost.ok()) ghosts.push_back({seat.policy, seat.parameters, std::move(ghost).value(), reads_, lost_});
  }
  ghosts_ = std::move(ghosts);
}

void AccessWatch::GiveUp() {
  ghosts_.clear();
  hindsight_.reset();
  if (trace_) EndTrace(Status(Code::kNoSpace, "out of memory"));
}

void AccessWatch::Tick(const Tiers& tiers) {
  const bool other = !std::equal(tiers.capacity_bytes, tiers.capacity_bytes + 2, tiers_.capacity_bytes);
  tiers_ = tiers;
  if (other) Restart();
  if (trace_) Pump(true);
}

// ---- ghosts ----------------------------------------------------------------------------------------------------------------

Result<sim::Ghost> AccessWatch::MakeGhost(const tierd_policy_ops& policy, const std::string& parameters) const {
  sim::CacheOptions options;
  std::copy_n(tiers_.capacity_bytes, 2, options.capacity_bytes);
  options.parameters = parameters;
  return sim::Ghost::Create(policy, options, sample_.share());
}

Status AccessWatch::Try(const tierd_policy_ops& policy, const std::string& parameters) {
  Result<sim::Ghost> ghost = MakeGhost(policy, parameters);
  if (!ghost.ok()) return ghost.status();
  StopTrying(policy.name);
  if (ghosts_.size() == kMostGhosts) return Status(Code::kNoSpace, std::to_string(kMostGhosts) + " policies are tried, no more at a time");
  ghosts_.push_back({&policy, parameters, std::move(ghost).value(), reads_, lost_});
  return Status::Ok();
}

void AccessWatch::OnPlan(std::uint32_t epoch, std::span<const Planned> reads) {
  std::vector<sim::StreamRead> sampled;
  for (const Planned& read : reads) {
    if (!sample_.Takes(read.key.hi)) continue;
    const std::uint32_t id = sample_.IdOf(ChunkKey(read.key, read.chunk));
    if (id == sim::Sample::kNotTaken) return Restart();  // without a plan until more of it comes
    sampled.push_back({.id = id, .bytes = read.bytes});
  }
  if (!reads.empty() && sampled.empty()) return;
  if (reads.empty() || epoch != planned_epoch_) planned_reads_ = 0;
  planned_epoch_ = epoch;
  for (GhostSeat& seat : ghosts_) seat.ghost.Plan(epoch, planned_reads_, sampled);
  planned_reads_ += static_cast<std::uint32_t>(sampled.size());
}

bool AccessWatch::StopTrying(const std::string& policy) {
  return std::erase_if(ghosts_, [&](const GhostSeat& seat) { return policy == seat.policy->name; }) != 0;
}

std::vector<AccessWatch::Tried> AccessWatch::tried() const {
  std::vector<Tried> tried;
  for (const GhostSeat& seat : ghosts_) {
    tried.push_back({.policy = seat.policy->name, .parameters = seat.parameters, .takes_plans = seat.ghost.takes_plans(), .planned = seat.ghost.planned(), .share = sample_.share(), .seen = SeenShare(reads_ - seat.reads_before, lost_ - seat.lost_before), .dropped = seat.ghost.dropped(), .counts = seat.ghost.counts(), .last_epoch = seat.ghost.last_epoch(),
                     .missed = seat.ghost.missed(), .last_epoch_missed = seat.ghost.last_epoch_missed()});
  }
  return tried;
}

// ---- trace -----------------------------------------------------------------------------------------------------------------

void AccessWatch::StartTrace(TraceOrder order, std::function<void(Status)> done) {
  if (trace_ || opening_) return done(Status(Code::kBusy, "a trace runs already"));
  ended_trace_ = {.path = order.path, .running = false, .error = "", .progress = {}};
  const std::uint64_t most_bytes = order.most_bytes;
  opening_ = workers_.Run([order = std::move(order)] { return OpenTrace(order); },
                          [this, most_bytes, done](Result<std::unique_ptr<sim::TraceFile>> file) {
                            opening_ = false;
                            if (file.ok()) {
                              trace_ = std::make_unique<Tracing>(most_bytes);
                              trace_->file = std::move(file).value();
                            }
                            done(file.ok() ? Status::Ok() : file.status());
                          });
  if (!opening_) done(Status(Code::kNoSpace, "out of memory"));
}

void AccessWatch::StopTrace(std::function<void(Status)> done) {
  if (!trace_ || trace_->stopped) return done(Status(Code::kNotFound, "no trace runs"));
  trace_->stopped = std::move(done);
  Pump(true);
}

void AccessWatch::Pump(bool all) {
  if (trace_->writing) return;
  std::string bytes = trace_->recorder.Take(all || trace_->stopped);
  if (bytes.empty() && !trace_->stopped) return;
  const bool last = trace_->stopped && bytes.empty();
  trace_->writing = workers_.Run([file = trace_->file, bytes = std::move(bytes), last] { return last ? file->Close() : file->Append(bytes); },
                                 [this, last, file = trace_->file](const Status& status) {
                                   if (!trace_ || trace_->file != file) return;  // given up meanwhile, maybe for another one
                                   trace_->writing = false;
                                   if (last || !status.ok()) return EndTrace(status);
                                   if (trace_->stopped) Pump(true);
                                 });
  if (!trace_->writing) EndTrace(Status(Code::kNoSpace, "out of memory"));
}

void AccessWatch::EndTrace(const Status& why) {
  const std::unique_ptr<Tracing> ended = std::move(trace_);
  ended_trace_.error = why.ok() ? "" : why.message();
  ended_trace_.progress = ended->recorder.progress();
  if (ended->stopped) ended->stopped(why);
}

AccessWatch::TraceState AccessWatch::trace() const {
  TraceState state = ended_trace_;
  state.running = trace_ != nullptr;
  if (trace_) state.progress = trace_->recorder.progress();
  return state;
}

}  // namespace tierd::engine
