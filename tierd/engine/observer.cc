#include "tierd/engine/observer.h"

#include <dirent.h>

#include <algorithm>
#include <utility>

#include "policies/orders/file_list.h"

namespace tierd::engine {
namespace {

// The text of a list (SampleMap::Make): as ImageFolder orders what lies in class folders; else by path.
std::string Ordered(std::vector<std::string> paths, const std::string& root, const std::string& top) {
  std::vector<std::string> inner;
  for (const std::string& path : paths) inner.push_back(top.empty() ? path : path.substr(top.size() + 1));
  std::vector<std::uint32_t> order = orders::ImageFolderOrder(inner);
  if (order.size() < inner.size() - inner.size() / 10) {
    order.resize(inner.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return orders::ComparePythonNames(inner[a], inner[b]) < 0; });
  }
  std::string text;
  for (const std::uint32_t at : order) {
    text += root + "/" + paths[at];
    text += '\0';
  }
  return text;
}

}  // namespace

void Observer::OnAccess(SessionId session, FileId file) {
  if (stage_ != Stage::kWatching) return;
  const std::uint32_t sample = map_->SampleOf(file);
  if (sample == SampleMap::kNone) return;
  watcher_->Observe({static_cast<std::uint32_t>(session), sample});
}

void Observer::Tick() {
  SourceUnit& unit = parts_.unit;
  if (unit.options.mode == OrderMode::kBlind) return;
  if (stage_ == Stage::kFound) {
    if (parts_.foresight.empty()) Restart();  // its readers are gone, or it was wrong and taken back
    return;
  }
  if (!parts_.foresight.empty()) {  // somebody tells
    if (stage_ != Stage::kWaiting && stage_ != Stage::kListing) Restart();
    return;
  }
  if (stage_ == Stage::kWaiting && unit.epochs.count() >= 2 && unit.epochs.epoch(0).files >= kLeastSamples) return ListFiles();
  if (stage_ != Stage::kWatching) return;
  if (hunt_ != nullptr && hunt_->ended()) {
    const auto found = hunt_->result();
    hunt_.reset();
    if (found) OnSeed(*found);
    if (stage_ != Stage::kWatching) return;
  }
  // The watcher's first epoch was under way when it came: only from the next on is the beginning seen.
  const bool seen_enough = watcher_->observation().accesses.size() >= std::min<std::size_t>(kEnough, map_->samples() / 4);
  if (hunt_ == nullptr && watcher_->epoch() > 0 && watcher_->epoch() != hunted_epoch_ && seen_enough) Hunt();
}

void Observer::ListFiles() {
  stage_ = Stage::kListing;
  paths_.clear();
  const std::string top = parts_.unit.warmup.common_directory();
  source::WalkRequest walk;
  walk.path = top;
  walk.on_batch = [this, alive = alive_](const source::WalkBatch& batch) {
    if (!*alive || paths_.size() > kMostSamples) return;
    for (const source::WalkEntry& entry : batch.entries) {
      if (entry.type == DT_REG) paths_.push_back(batch.directory.empty() ? entry.name : batch.directory + "/" + entry.name);
    }
  };
  walk.on_done = [this, top, alive = alive_](const source::WalkTotals& totals) {
    if (!*alive) return;
    if (!totals.complete() || paths_.size() < kLeastSamples || paths_.size() > kMostSamples) return Restart();
    SampleMap::Where where{.roots = {parts_.unit.source->root()}, .wire_id = parts_.unit.wire_id, .secret = {}};
    std::copy_n(parts_.catalogue.hash_secret(), where.secret.size(), where.secret.begin());
    const bool handed = parts_.workers.Run(
        [paths = std::move(paths_), top, where = std::move(where)]() mutable { return SampleMap::Make(Ordered(std::move(paths), where.roots[0], top), where); },
        [this](Result<SampleMap::List> list) { Watch(std::move(list)); });
    paths_ = {};
    if (!handed) Restart();
  };
  parts_.unit.job_walker->Start(std::move(walk));
}

void Observer::Watch(Result<SampleMap::List> list) {
  if (!list.ok()) return Restart();
  list_ = *list;
  map_ = std::make_unique<SampleMap>(SampleMap::Parts{parts_.unit, parts_.catalogue, parts_.fetcher, parts_.clock}, std::move(list).value());
  watcher_.emplace(map_->samples());
  hunted_epoch_ = 0;
  last_.reset();
  stage_ = Stage::kWatching;
}

void Observer::Hunt() {
  hunted_epoch_ = watcher_->epoch();
  hunt_ = std::make_unique<SeedHunt>(watcher_->observation(), orders::SeedSearch::Options{}, kShareOfCore);
}

// Of the epoch hunted_epoch_. One seed says nothing of the next epoch; two in a row do.
void Observer::OnSeed(const orders::RecoveredOrder& found) {
  const std::optional<orders::RecoveredOrder> before = std::exchange(last_, found);
  const std::uint32_t epoch_before = std::exchange(last_epoch_, hunted_epoch_);
  if (found.recipe == orders::Recipe::kIdentity) return MakePlans(found, true);
  if (!before || epoch_before + 1 != hunted_epoch_ || before->recipe != found.recipe || before->fit.stride != found.fit.stride || before->fit.offsets != found.fit.offsets) return;
  const std::uint32_t seeds[] = {before->seed, found.seed};
  const orders::SeedRule rule = orders::RuleOf(seeds);
  if (found.recipe != orders::Recipe::kFresh || rule == orders::SeedRule::kFresh) return;
  MakePlans(found, rule == orders::SeedRule::kSame);
}

void Observer::MakePlans(const orders::RecoveredOrder& found, bool same_each_epoch) {
  // The watcher may have gone on to another epoch while the seed was looked for.
  const std::uint32_t passed = watcher_->epoch() - hunted_epoch_;
  for (const std::uint32_t rank : found.fit.offsets) {
    Foresight::Consumer consumer;
    consumer.id = ++parts_.last_plan;
    consumer.plan.kind = orders::Kind::kTorchDistributed;
    consumer.plan.samples = map_->samples();
    consumer.plan.seed = static_cast<std::int64_t>(found.seed) + (same_each_epoch ? 0 : passed);
    consumer.plan.shuffle = found.recipe != orders::Recipe::kIdentity;
    consumer.plan.set_epoch = !same_each_epoch;
    consumer.plan.world = found.fit.stride;
    consumer.plan.rank = rank;
    consumer.document = orders::PlanToJson(consumer.plan);
    consumer.list = list_;
    consumer.told = false;
    if (!parts_.foresight.Add(std::move(consumer)).ok()) return Restart();
  }
  stage_ = Stage::kFound;
  map_.reset();
  watcher_.reset();
  list_ = {};
}

void Observer::Restart() {
  stage_ = Stage::kWaiting;
  hunt_.reset();
  map_.reset();
  watcher_.reset();
  list_ = {};
  paths_ = {};
  last_.reset();
}

std::string Observer::Report() const {
  switch (stage_) {
    case Stage::kWaiting: return "";
    case Stage::kListing: return "listing the dataset";
    case Stage::kWatching: return hunt_ != nullptr ? "looking for the seed of epoch " + std::to_string(hunted_epoch_) : "watching for the next epoch";
    case Stage::kFound: return "recovered";
  }
  return "";
}

}  // namespace tierd::engine
