#include "tierd/engine/movers/sweeps.h"

#include <algorithm>
#include <utility>

#include "tierd/engine/out_of_memory.h"

namespace tierd::engine {
namespace {

constexpr std::int64_t kSliceNs = 1'000'000;
constexpr std::size_t kCostPerLook = 512;   // at the clock, in entries passed by (~10 ns each)
constexpr std::size_t kCostPerVisit = 32;
constexpr std::size_t kCostPerChunk = 16;
constexpr unsigned kFailuresToGiveUp = 100;

}  // namespace

void Sweeps::Start(Request request) {
  const FileId exact = catalogue_.Find(catalogue_.KeyOf(request.unit->wire_id, request.path));
  const bool is_file = exact != kNoFile && (catalogue_.file(exact).flags & (kFileDirectory | kFileAlias)) == 0;
  // What was a file when it was looked at may have become a directory, whose files are known by now: they go with it.
  if (is_file && request.kind != Kind::kInvalidate) {
    const bool counts = request.visit(exact);
    return request.done(true, counts ? 1 : 0);
  }
  if (Served(request)) return;
  if (waiting_ >= kMost && !request.always) return request.done(false, 0);
  // The entries of a directory are found by its name; it itself is not among them.
  const bool visited = exact != kNoFile && !request.path.empty();
  const bool counts = visited && request.visit(exact);
  Sweep* sweep = Find(request);
  const std::uint64_t counted = sweep == nullptr ? 0 : sweep->counted;
  ends_.push_back({nullptr, round_, position_, clock_.PreciseNs(), counted - (counts ? 1 : 0), {}});
  const bool survived = Survives([&] {
    ends_.back().done.push_back(std::move(request.done));
    if (sweep == nullptr) sweep = Add(request);
  });
  if (!survived) {
    ends_.pop_back();
    throw std::bad_alloc();
  }
  ends_.back().sweep = sweep;
  ++sweep->ends;
  ++waiting_;
  // As Visit does: of the kinds only an invalidation comes here with a file.
  if (is_file && (catalogue_.file(exact).flags & kFileUsed) != 0 && on_invalidated) on_invalidated(exact);
}

// Said before, and a sweep has begun since: its end is the answer.
bool Sweeps::Served(const Request& request) {
  if (request.kind != Kind::kInvalidate || request.said_ns == 0) return false;
  for (const Invalidated& past : invalidated_) {
    if (past.unit != request.unit || past.begun_ns < request.said_ns || !AtOrBelow(request.path, past.path)) continue;
    request.done(true, 0);
    return true;
  }
  Sweep* const sweep = Find(request);
  if (sweep == nullptr || waiting_ >= kMost) return false;
  for (End& end : ends_) {
    if (end.sweep != sweep || end.begun_ns < request.said_ns) continue;
    end.done.push_back(request.done);
    ++waiting_;
    return true;
  }
  return false;
}

Sweeps::Sweep* Sweeps::Find(const Request& request) {
  if (request.kind == Kind::kOther || request.unit->index >= by_path_.size()) return nullptr;
  const auto there = by_path_[request.unit->index].find(request.path);
  if (there == by_path_[request.unit->index].end()) return nullptr;
  for (Sweep* const sweep : there->second) {
    if (sweep->kind == request.kind && !sweep->failed) return sweep;
  }
  return nullptr;
}

Sweeps::Sweep* Sweeps::Add(Request& request) {
  auto owned = std::make_unique<Sweep>(Sweep{request.unit, request.path, request.kind, {}});
  Sweep* const sweep = owned.get();
  if (by_path_.size() <= request.unit->index) by_path_.resize(request.unit->index + 1u);
  std::vector<Sweep*>& here = by_path_[request.unit->index][request.path];
  here.reserve(here.size() + 1);
  sweeps_.emplace(sweep, std::move(owned));
  here.push_back(sweep);
  sweep->visit = std::move(request.visit);
  above_known_ = false;
  return sweep;
}

void Sweeps::Remove(Sweep* sweep) {
  Paths& paths = by_path_[sweep->unit->index];
  const auto here = paths.find(sweep->path);
  std::erase(here->second, sweep);
  if (here->second.empty()) paths.erase(here);
  sweeps_.erase(sweep);
  above_known_ = false;
}

bool Sweeps::Step() {
  if (ends_.empty()) return false;
  const bool survived = Survives([&] { Slice(); });
  if (survived) {
    failures_ = 0;
  } else if (++failures_ >= kFailuresToGiveUp) {  // there has been no memory for this one entry all the time
    for (const auto& [sweep, owned] : sweeps_) sweep->failed = true;
    for (End& end : ends_) end.round = 0, end.position = 0;
    round_ = std::max<std::uint64_t>(round_, 2);
    failures_ = 0;
  }
  FinishReached();
  return survived && !ends_.empty();
}

void Sweeps::Slice() {
  const std::int64_t begin_ns = clock_.PreciseNs();
  const std::size_t slots = catalogue_.file_slots();
  std::size_t cost = 0;
  for (std::size_t looked = 0; looked < kSlotsPerStep && !Reached(ends_.front()); ++looked) {
    if (cost >= kCostPerLook) {
      cost = 0;
      if (clock_.PreciseNs() - begin_ns > kSliceNs) return;
    }
    if (position_ >= slots) {
      position_ = 0;
      ++round_;
      continue;
    }
    cost += 1 + Visit(static_cast<FileId>(position_));
    ++position_;
  }
}

std::size_t Sweeps::Visit(FileId file) {
  const FileRecord& record = catalogue_.file(file);
  if ((record.flags & kFileUsed) == 0) return 0;
  std::size_t cost = 0;
  bool invalidated = false;
  for (Sweep* const sweep : SweepsAbove(record.source, record.dir)) {
    cost += kCostPerVisit + kCostPerChunk * catalogue_.ChunkCount(file);
    if (sweep->visit(file)) ++sweep->counted;
    invalidated |= sweep->kind == Kind::kInvalidate;
    if ((record.flags & kFileUsed) == 0) return cost;  // by what an answer led to
  }
  if (!invalidated || !on_invalidated) return cost;
  on_invalidated(file);
  return cost + kCostPerVisit;
}

const std::vector<Sweeps::Sweep*>& Sweeps::SweepsAbove(std::uint16_t source, std::uint32_t dir) {
  if (above_known_ && above_source_ == source && above_dir_ == dir && above_left_ == catalogue_.directories_left()) return above_;
  above_known_ = false;
  above_.clear();
  if (source < by_path_.size() && !by_path_[source].empty()) {
    for (std::string at = catalogue_.DirectoryPath(dir);; at.resize(at.rfind('/') == std::string::npos ? 0 : at.rfind('/'))) {
      if (const auto here = by_path_[source].find(at); here != by_path_[source].end()) above_.insert(above_.end(), here->second.begin(), here->second.end());
      if (at.empty()) break;
    }
  }
  above_source_ = source;
  above_dir_ = dir;
  above_left_ = catalogue_.directories_left();
  above_known_ = true;
  return above_;
}

void Sweeps::FinishReached() {
  while (!ends_.empty() && Reached(ends_.front())) {
    End end = std::move(ends_.front());
    ends_.pop_front();
    waiting_ -= end.done.size();
    const bool complete = !end.sweep->failed;
    const std::uint64_t counted = end.sweep->counted - end.counted_before;
    if (complete && end.sweep->kind == Kind::kInvalidate) {
      Invalidated& past = invalidated_[next_invalidated_++ % kRemembered];
      past = {nullptr, std::move(past.path), 0};
      (void)Survives([&] { past.path = end.sweep->path; past.begun_ns = end.begun_ns; past.unit = end.sweep->unit; });
    }
    if (--end.sweep->ends == 0) Remove(end.sweep);
    for (const auto& done : end.done) (void)Survives([&] { done(complete, counted); });
  }
}

}  // namespace tierd::engine
