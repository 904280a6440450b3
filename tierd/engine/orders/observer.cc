#include "tierd/engine/orders/observer.h"

#include <dirent.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "policies/orders/evidence.h"
#include "policies/orders/file_list.h"

namespace tierd::engine {
namespace {

constexpr std::uint64_t kMostGuessed = 128;      // epochs of a guess
constexpr std::size_t kMostKept = 4;
constexpr std::size_t kMostRepeats = 8;          // of a first epoch
constexpr std::uint32_t kQuickEpochs = 2;        // in which small seeds alone are looked for
constexpr std::uint32_t kMostAttempts = 30;      // to find the readers of a plan that is right
constexpr std::uint32_t kLongestRestTicks = 3600;
constexpr std::uint32_t kRestTicks = 30;         // doubled each time that plans were taken back

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

// ---- what is read ----------------------------------------------------------------------------------------------------------

void Observer::OnAccess(SessionId session, FileId file) {
  if (parts_.unit.options.mode == OrderMode::kBlind) return;
  read_ = true;
  ++reads_;
  if (recording_ && beginnings_.back().accesses.size() < orders::EpochWatcher::kKept) beginnings_.back().accesses.emplace_back(session, file);
  if (stage_ != Stage::kWatching) return;
  const std::uint32_t sample = map_->SampleOf(file);
  if (sample == SampleMap::kNone) return;
  watcher_->Observe({static_cast<std::uint32_t>(session), sample});
}

// Behind a pause another job may begin.
void Observer::NoteQuiet(bool read) {
  const std::int64_t now_ns = parts_.clock.MonotonicNs();
  if (read) read_ns_ = now_ns;
  if (std::exchange(quiet_, now_ns - read_ns_ >= kQuietNs) || !quiet_) return;
  if (recording_ && beginnings_.back().accesses.empty()) beginnings_.pop_back();
  if (beginnings_.size() == kMostKept) beginnings_.erase(beginnings_.begin());
  beginnings_.push_back({.since = parts_.unit.epochs.ended()});
  recording_ = true;
}

void Observer::NoteMisses(std::uint64_t brought) {
  missed_ |= std::exchange(brought_, brought) != brought;
  if (std::exchange(epochs_ended_, parts_.unit.epochs.ended()) == parts_.unit.epochs.ended()) return;
  missed_before_ = std::exchange(missed_, false);
}

void Observer::Tick(std::uint64_t brought) {
  SourceUnit& unit = parts_.unit;
  if (unit.options.mode == OrderMode::kBlind) return;
  const bool read = std::exchange(read_, false);
  NoteMisses(brought);
  std::erase_if(stopped_, [](const std::unique_ptr<SeedHunt>& hunt) { return hunt->ended(); });
  NoteQuiet(read);
  if (stage_ == Stage::kFound) return CheckPlans(read);
  if (!parts_.foresight.empty()) {  // somebody tells
    if (stage_ == Stage::kWatching) Restart();
    beginnings_.clear();
    recording_ = false;
    return;
  }
  if (stage_ == Stage::kWaiting) {
    if (rest_ticks_ > 0) --rest_ticks_;
    else if (ReadForAnEpoch()) ListFiles();
    return;
  }
  if (stage_ != Stage::kWatching) return;
  if (hunt_ != nullptr && hunt_->ended()) TakeHunted();
  if (stage_ == Stage::kWatching && all_in_ram()) return Rest();
  if (right_) return FindPlace();
  // The watcher's first epoch was under way when it came: only from the next on is the beginning seen.
  if (stage_ != Stage::kWatching || hunt_ != nullptr || HuntBeginning()) return;
  if (watcher_->epoch() == 0) return;
  if (const Look look = WorthALook(); look > (watcher_->epoch() == hunted_epoch_ ? hunted_ : Look::kNone)) Hunt(look);
}

// What was hunted may be hunted again.
void Observer::Rest() {
  if (hunt_ == nullptr) return;
  EndHunt();
  if (!hunting_beginning_) hunted_ = Look::kNone;
  else if (beginnings_.size() < kMostKept) beginnings_.insert(beginnings_.begin(), std::move(hunted_beginning_));
}

// All of it; or, by ranks that see another part of it in each epoch, so much that half of the reads more were of files that had been read.
bool Observer::ReadForAnEpoch() const {
  const EpochCounter& epochs = parts_.unit.epochs;
  if (epochs.count() == 0) return false;
  const EpochCounter::Epoch first = epochs.epoch(0);
  return first.files >= kLeastSamples && (epochs.count() >= 2 || 2 * reads_ >= 3 * first.files);
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
  list_ = SampleMap::Share(std::move(list).value(), parts_.workers);
  map_ = std::make_unique<SampleMap>(SampleMap::Parts{parts_.unit, parts_.catalogue, parts_.fetcher, parts_.clock}, list_);
  watcher_.emplace(map_->samples());
  hunted_epoch_ = 0;
  stage_ = Stage::kWatching;
}

// ---- seeds -----------------------------------------------------------------------------------------------------------------

// Of a rank, an epoch is as long as its last one was.
Observer::Look Observer::WorthALook() const {
  const std::size_t seen = watcher_->observation().accesses.size();
  const std::uint64_t epoch = std::min<std::uint64_t>(watcher_->length(), map_->samples());
  if (seen < std::clamp<std::uint64_t>(epoch / 4, kLeastEarly, kMostEarly) || !orders::MayTell(watcher_->observation(), orders::SeedSearch::LogTried(false))) return Look::kNone;
  return seen >= std::min<std::uint64_t>(kEnough, epoch - epoch / 4) ? Look::kFull : Look::kEarly;
}

// And one more: epochs are told apart with some delay.
std::uint64_t Observer::EpochsSince(std::uint64_t ended) const { return std::min(parts_.unit.epochs.ended() - ended + 3, kMostGuessed); }

void Observer::Hunt(Look look) {
  hunted_epoch_ = watcher_->epoch();
  hunted_ = look;
  hunting_beginning_ = false;
  hunted_since_ = parts_.unit.epochs.ended() - std::min<std::uint64_t>(parts_.unit.epochs.ended(), 1);
  std::vector<orders::PlanSearch> guesses;
  const orders::OrderFit whole{.offsets = {0}};
  for (const Generator& generator : generators_) guesses.push_back({.plan = generator.plan, .like = whole, .epochs = EpochsSince(generator.since)});
  if (last_ && last_->recipe == orders::Recipe::kFresh) {
    const std::uint64_t passed = std::min(watcher_->epoch() - last_since_ + 3, kMostGuessed);
    guesses.push_back({.plan = DistributedOf(last_->seed), .like = last_->fit, .from = 1, .epochs = passed});
    // Maybe the first that RandomSampler drew from a generator of its own.
    if (last_->fit.stride == 1) guesses.push_back({.plan = GeneratorOf(*last_), .like = whole, .from = 1, .epochs = passed});
  }
  // All seeds take an hour: not of the first epochs, which may be odd ones, nor while a guess may be right in the next.
  const orders::SeedSearch::Options options{.all_seeds = guesses.empty() && look == Look::kFull && watcher_->epoch() > kQuickEpochs};
  hunt_ = std::make_unique<SeedHunt>(watcher_->observation(), options, std::move(guesses), kShareOfCore);
}

// What the first accesses are of is known now.
bool Observer::HuntBeginning() {
  const std::size_t enough = std::min<std::size_t>(kEnough, map_->samples() - map_->samples() / 4);
  const auto is_short = [&] { return beginnings_.front().accesses.size() < enough; };
  while (!beginnings_.empty() && !(recording_ && beginnings_.size() == 1) && is_short()) beginnings_.erase(beginnings_.begin());
  if (beginnings_.empty() || is_short()) return false;
  orders::Observation observation{.samples = map_->samples(), .accesses = {}};
  std::vector<bool> seen(map_->samples());
  std::size_t repeats = 0;
  for (const auto& [session, file] : beginnings_.front().accesses) {
    const std::uint32_t sample = map_->SampleOf(file);
    if (sample == SampleMap::kNone) continue;
    // What is read again is of the next epoch, where ranks read another part: of the first one's it would be noise.
    repeats += seen[sample] ? 1 : 0;
    if (repeats > kMostRepeats && observation.accesses.size() >= enough) break;
    seen[sample] = true;
    observation.accesses.push_back({static_cast<std::uint32_t>(session), sample});
  }
  hunting_beginning_ = true;
  hunted_since_ = beginnings_.front().since;
  hunted_beginning_ = std::move(beginnings_.front());
  beginnings_.erase(beginnings_.begin());
  recording_ = recording_ && !beginnings_.empty();
  hunt_ = std::make_unique<SeedHunt>(std::move(observation), orders::SeedSearch::Options{.all_seeds = false}, std::vector<orders::PlanSearch>(), kShareOfCore);
  return true;
}

void Observer::TakeHunted() {
  const SeedHunt::Found found = hunt_->result();
  hunt_.reset();
  if (found.guess) right_ = Right{.search = *found.guess, .epoch = hunted_epoch_};
  else if (found.order && hunting_beginning_) OnFirstSeed(*found.order);
  else if (found.order) OnSeed(*found.order);
  if (!hunting_beginning_ && (found.guess || found.order)) hunted_ = Look::kFull;
}

// Its thread may compute an epoch, or rest: nobody waits for that here.
void Observer::EndHunt() {
  if (hunt_ == nullptr) return;
  hunt_->Stop();
  stopped_.push_back(std::move(hunt_));
}

// RandomSampler's, whose first epoch is that.
orders::Plan Observer::GeneratorOf(const orders::RecoveredOrder& found) const {
  orders::Plan plan;
  plan.kind = orders::Kind::kTorchRandom;
  plan.samples = plan.draws = map_->samples();
  plan.start = orders::GeneratorStart{.seed = found.seed, .words = std::nullopt};
  plan.shared = found.recipe == orders::Recipe::kGlobal;
  plan.skip_first = plan.skip_later = found.recipe == orders::Recipe::kFresh ? 0 : 1;  // the DataLoader's own draw
  return plan;
}

// All ranks of it together.
orders::Plan Observer::DistributedOf(std::uint32_t seed) const {
  orders::Plan plan;
  plan.kind = orders::Kind::kTorchDistributed;
  plan.samples = map_->samples();
  plan.seed = seed;
  return plan;
}

void Observer::OnFirstSeed(const orders::RecoveredOrder& found) {
  if (found.recipe == orders::Recipe::kIdentity || found.fit.stride != 1) return;
  if (generators_.size() == kMostKept) generators_.erase(generators_.begin());
  generators_.push_back({.plan = GeneratorOf(found), .since = hunted_since_});
}

// Of the epoch hunted_epoch_: what the next one begins with says what follows from it, unless there is nothing to follow.
void Observer::OnSeed(const orders::RecoveredOrder& found) {
  const std::optional<orders::RecoveredOrder> before = std::exchange(last_, found);
  last_since_ = hunted_epoch_;
  orders::Plan same = DistributedOf(found.seed);
  same.set_epoch = false;
  if (found.recipe == orders::Recipe::kIdentity) {
    same.shuffle = false;
    return MakePlans(same, found.fit);
  }
  if (found.recipe != orders::Recipe::kFresh) {
    if (found.fit.stride == 1) right_ = Right{.search = {.plan = GeneratorOf(found), .like = found.fit}, .epoch = hunted_epoch_};
    return;
  }
  if (watcher_->same_orders() > 0) return MakePlans(same, found.fit);
  if (!before || before->recipe != found.recipe || before->fit.stride != found.fit.stride || before->fit.offsets != found.fit.offsets) return;
  const std::uint32_t seeds[] = {before->seed, found.seed};
  if (orders::RuleOf(seeds) == orders::SeedRule::kSame) MakePlans(same, found.fit);
}

// ---- plans -----------------------------------------------------------------------------------------------------------------

// Its readers may have gone on to other epochs meanwhile, also while it is computed: then it is looked for again.
void Observer::FindPlace() {
  if (placing_ || WorthALook() == Look::kNone) return;
  if (++right_->attempts > kMostAttempts) return right_.reset();
  orders::PlanSearch search = right_->search;
  search.epochs = watcher_->epoch() - right_->epoch + 3;
  const double log_tried = std::log(static_cast<double>(search.epochs));
  placing_ = parts_.workers.Run([search, log_tried, observation = watcher_->observation()] { return orders::Locate(search, observation, log_tried, [] { return true; }); },
                                [this, epoch = watcher_->epoch(), alive = alive_](const std::optional<orders::Plan>& plan) {
                                  if (!*alive) return;
                                  placing_ = false;
                                  if (plan && stage_ == Stage::kWatching && right_ && watcher_->epoch() == epoch) MakePlans(*plan, right_->search.like);
                                });
}

void Observer::MakePlans(const orders::Plan& plan, const orders::OrderFit& like) {
  plans_.clear();
  for (const std::uint32_t rank : like.offsets) {
    Foresight::Consumer consumer;
    consumer.id = ++parts_.last_plan;
    consumer.plan = plan;
    if (plan.kind == orders::Kind::kTorchDistributed) {
      consumer.plan.seed += static_cast<std::int64_t>(std::exchange(consumer.plan.epoch, 0));  // nobody knows which is which
      consumer.plan.world = like.stride;
      consumer.plan.rank = rank;
    }
    consumer.document = orders::PlanToJson(consumer.plan);
    consumer.list = list_;
    consumer.told = false;
    consumer.read = watcher_->observation().accesses;
    if (!parts_.foresight.Add(std::move(consumer)).ok()) return Restart();
    plans_.push_back(parts_.last_plan);
  }
  stage_ = Stage::kFound;
  same_orders_ = plan.set_epoch || !plan.shuffle ? 0 : std::max(1u, watcher_->same_orders());
  doubted_ticks_ = 0;
  EndHunt();
  right_.reset();
  map_.reset();
  watcher_.reset();
  list_.reset();
}

// Plans that nobody reads by are taken back, and looked for again; less and less often, as the dataset has to be listed each time.
void Observer::CheckPlans(bool read) {
  if (parts_.foresight.empty()) {  // its readers are gone
    generators_.clear();
    return Restart();
  }
  doubted_ticks_ = parts_.foresight.trusted() ? 0 : doubted_ticks_ + (read ? 1 : 0);
  if (doubted_ticks_ < kDoubtedTicks) return;
  rest_ticks_ = taken_back_ == 0 ? 0 : std::min(kLongestRestTicks, kRestTicks << std::min(taken_back_, 7u));
  ++taken_back_;
  Restart();
}

void Observer::Restart() {
  stage_ = Stage::kWaiting;
  EndHunt();
  right_.reset();
  map_.reset();
  watcher_.reset();
  list_.reset();
  paths_ = {};
  last_.reset();
  for (const std::uint64_t id : plans_) parts_.foresight.Remove(id);
  plans_.clear();
  same_orders_ = 0;
}

std::string Observer::Report() const {
  switch (stage_) {
    case Stage::kWaiting: return "";
    case Stage::kListing: return "listing the dataset";
    case Stage::kWatching:
      if (all_in_ram()) return "all of it is in RAM: no order is looked for";
      if (right_) return "looking for where its readers are";
      if (hunt_ == nullptr) return "watching for the next epoch";
      return "looking for the seed of " + (hunting_beginning_ ? "the first epoch" : "epoch " + std::to_string(hunted_epoch_));
    case Stage::kFound: return "recovered";
  }
  return "";
}

}  // namespace tierd::engine
