#include "tierd/engine/orders/foresight.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace tierd::engine {
namespace {

constexpr std::uint32_t kVotes = 16;            // accesses that a consumer explains, less others, which say that this is its reader
constexpr std::uint32_t kWrong = 16;            // accesses after which it may be somebody else's
constexpr std::size_t kSlice = 1 << 16;         // entries that a worker computes at a time
constexpr std::size_t kDeclaredPerTurn = 2048;  // files; and objects, but for the rest of a file
constexpr std::uint64_t kMostAhead = 1 << 26;   // entries
constexpr std::int64_t kRestNs = 1'000'000'000; // between two beginnings
constexpr double kPaceMemory = 0.2;             // weight of the latest second
constexpr double kOutpaced = 1.5;
constexpr double kTolerated = 0.25;             // share of the latest accesses that are not as foretold
constexpr std::size_t kSmallEpoch = 4 * orders::PlanFollower::kWindowLeast;  // a window is more than a quarter of it

}  // namespace

struct Foresight::Followed {
  Followed(const SampleMap::Parts& parts, Consumer consumer, orders::PlanOrders orders)
      : id(consumer.id), plan(std::move(consumer.plan)), document(std::move(consumer.document)), told(consumer.told), keep(consumer.keep), process(std::move(consumer.process)),
        map(parts, std::move(consumer.list)), follower(std::move(orders)) {}

  bool eligible() const { return trusted && map.complete() && follower.current() != nullptr && !follower.over(); }

  const std::uint64_t id;
  const orders::Plan plan;
  const std::string document;
  const bool told;
  const bool keep;
  const UniqueFd process;
  SampleMap map;
  orders::PlanFollower follower;
  std::uint32_t readers = 0;       // sessions found to be its
  std::uint32_t right = 0;         // of these, those that read what was foretold, of late
  double doubt = 0;                // share of the latest accesses that it did not foretell
  bool trusted = true;
  bool in_future = false;
  bool read = false;               // by somebody, ever
  std::int64_t last_reader_ns = 0;
  std::uint64_t left = 0;          // of the epoch that is read: told to the policy, and not counted as consumed
  std::uint64_t left_epoch = 0;    // epochs_begun then
  std::uint64_t expected = 0;      // accesses, ever
  std::uint64_t expected_before = 0;  // at the last tick
  std::uint32_t taken = 0;         // of the present epoch, for who brings ahead
  std::uint64_t taken_epoch = 0;
  double pace = 0;
  double merged_pace = 0;          // by which it was merged; 0: by the length of its epochs
};

Foresight::Foresight(const Parts& parts)
    : unit_(parts.unit), catalogue_(parts.catalogue), fetcher_(parts.fetcher), workers_(parts.workers), clock_(parts.clock), renew_policy_(parts.renew_policy), wake_(parts.wake) {}
Foresight::~Foresight() = default;

// ---- plans -----------------------------------------------------------------------------------------------------------------

Status Foresight::Add(Consumer consumer) {
  if (consumers_.size() >= kMostPlans) return Status(Code::kNoSpace, std::to_string(kMostPlans) + " plans are known of source " + unit_.options.name + ", no more are taken");
  if (consumer.list->size() != consumer.plan.samples)
    return Status(Code::kInvalid, "the plan says " + std::to_string(consumer.plan.samples) + " samples, the list has " + std::to_string(consumer.list->size()) + " paths");
  Result<orders::PlanOrders> orders = orders::PlanOrders::Create(consumer.plan);
  if (!orders.ok()) return orders.status();
  std::vector<orders::SampleAccess> read = std::move(consumer.read);
  auto followed = std::make_unique<Followed>(SampleMap::Parts{unit_, catalogue_, fetcher_, clock_}, std::move(consumer), std::move(orders).value());
  followed->follower.HasBeenRead(std::move(read));
  followed->last_reader_ns = clock_.MonotonicNs();
  consumers_.push_back(std::move(followed));
  return Status::Ok();
}

bool Foresight::Remove(std::uint64_t id) {
  const auto at = std::find_if(consumers_.begin(), consumers_.end(), [id](const auto& one) { return one->id == id; });
  if (at == consumers_.end()) return false;
  const auto place = static_cast<std::size_t>(at - consumers_.begin());
  for (auto& [session, reader] : readers_) {
    if (reader.consumer == at->get()) reader = {};
    else if (reader.votes.size() > place) reader.votes.erase(reader.votes.begin() + static_cast<std::ptrdiff_t>(place));
  }
  consumers_.erase(at);
  return true;
}

Foresight::Followed* Foresight::Find(std::uint64_t id) const {
  const auto at = std::find_if(consumers_.begin(), consumers_.end(), [id](const auto& one) { return one->id == id; });
  return at == consumers_.end() ? nullptr : at->get();
}

std::vector<PlanStatus> Foresight::List() const {
  std::vector<PlanStatus> list;
  for (const auto& one : consumers_) {
    PlanStatus status;
    status.id = one->id;
    status.state = !one->trusted ? PlanState::kDoubted : !one->map.complete() ? PlanState::kMapping : one->read ? PlanState::kFollowed : PlanState::kWaiting;
    status.told = one->told;
    status.document = one->document;
    status.samples = one->map.samples();
    status.known = one->map.known();
    status.epochs_begun = one->follower.epochs_begun();
    if (const auto& now = one->follower.current()) {
      status.epoch = one->follower.epoch();
      status.position = now->frontier();
      status.epoch_samples = now->order().size();
    }
    status.readers = one->readers;
    status.counts = one->follower.counts();
    status.pace = one->pace;
    list.push_back(std::move(status));
  }
  return list;
}

// ---- accesses --------------------------------------------------------------------------------------------------------------

void Foresight::Assign(Reader& reader, Followed* consumer) {
  if (reader.consumer != nullptr) {
    --reader.consumer->readers;
    reader.consumer->right -= reader.wrong == 0 ? 1 : 0;
  }
  reader = {.consumer = consumer, .votes = {}};
  if (consumer == nullptr) return;
  ++consumer->readers;
  ++consumer->right;
}

void Foresight::OnSessionEnd(SessionId session) {
  const auto at = readers_.find(static_cast<std::uint32_t>(session));
  if (at == readers_.end()) return;
  Assign(at->second, nullptr);
  readers_.erase(at);
}

std::size_t Foresight::WhoExpects(Reader& reader, FileId file, std::uint8_t tag) const {
  reader.votes.resize(consumers_.size());
  std::size_t likely = consumers_.size();
  for (std::size_t i = 0; i < consumers_.size(); ++i) {
    Followed& one = *consumers_[i];
    const std::uint32_t sample = one.map.SampleOf(file);
    if (sample == SampleMap::kNone || !one.follower.Expects(sample, {.tag = tag, .own = false})) {
      reader.votes[i] -= std::min(reader.votes[i], 1u);
      continue;
    }
    ++reader.votes[i];
    const auto rank = [&](std::size_t at) { return std::pair(reader.votes[at], consumers_[at]->expected); };
    if (likely == consumers_.size() || rank(i) > rank(likely)) likely = i;
  }
  return likely;
}

void Foresight::Soon(std::span<const FileId> files) const {
  for (const auto& one : consumers_) {
    for (const FileId file : files) one->map.Soon(file);
    for (const FileId file : files) {
      if (const std::uint32_t sample = one->map.KnownSampleOf(file); sample != SampleMap::kNone) one->follower.Soon(sample);
    }
  }
}

bool Foresight::Names(FileId file) const {
  return std::any_of(consumers_.begin(), consumers_.end(), [file](const auto& one) { return one->map.KnownSampleOf(file) != SampleMap::kNone; });
}

void Foresight::OnAccess(SessionId session, FileId file) {
  if (consumers_.empty()) return;
  const auto tag = orders::PlanFollower::TagOf(static_cast<std::uint32_t>(session));
  Reader& reader = readers_[static_cast<std::uint32_t>(session)];
  Followed* const own = reader.consumer;
  const std::uint32_t sample = own == nullptr ? SampleMap::kNone : own->map.SampleOf(file);
  if (own != nullptr && (sample == SampleMap::kNone || consumers_.size() == 1 || own->follower.Expects(sample, {.tag = tag, .own = true}))) {
    reader.votes.clear();
    if (sample != SampleMap::kNone) ObserveOwn(reader, sample, tag);
    return;
  }
  const std::size_t at = WhoExpects(reader, file, tag);
  if (at == consumers_.size()) return own != nullptr ? ObserveOwn(reader, sample, tag) : ObserveStranger(file, tag);
  Followed& likely = *consumers_[at];
  Observe(likely, likely.map.SampleOf(file), {.tag = tag, .own = false});
  if (reader.votes[at] >= kVotes) Assign(reader, &likely);
}

void Foresight::ObserveOwn(Reader& reader, std::uint32_t sample, std::uint8_t tag) {
  Followed& consumer = *reader.consumer;
  const auto verdict = Observe(consumer, sample, {.tag = tag, .own = true}, &reader);
  const bool foretold = verdict == orders::PlanFollower::Verdict::kExpected || verdict == orders::PlanFollower::Verdict::kShared;
  if (foretold && reader.wrong > 0 && --reader.wrong == 0) ++consumer.right;
  if (verdict != orders::PlanFollower::Verdict::kWrong) return;
  if (reader.wrong++ == 0) --consumer.right;
  // Others do as they should: this one does not belong to them.
  if (reader.wrong >= kWrong && consumer.right > 0) Assign(reader, nullptr);
}

// Nobody expected that of nobody's reader: it speaks against those whose readers have not been found yet.
void Foresight::ObserveStranger(FileId file, std::uint8_t tag) {
  for (const auto& one : consumers_) {
    const std::uint32_t sample = one->map.SampleOf(file);
    if (sample != SampleMap::kNone && one->readers == 0) Observe(*one, sample, {.tag = tag, .own = false});
  }
}

orders::PlanFollower::Verdict Foresight::Observe(Followed& consumer, std::uint32_t sample, orders::ReaderTag who, const Reader* reader) {
  using Verdict = orders::PlanFollower::Verdict;
  const orders::OrderFollower* const before = consumer.follower.current().get();
  const std::size_t from = before == nullptr ? 0 : before->frontier(), length = before == nullptr ? 0 : before->order().size();
  const std::uint32_t window = before == nullptr ? 0 : before->window();
  // Nearly all of a small epoch is in the window, whatever its order: there a reader has to go forward, as it did when the order was found.
  const bool back = !consumer.told && length < kSmallEpoch && before != nullptr && before->GoesBack(sample, who);
  const Verdict verdict = consumer.follower.Observe(sample, who);
  // Resumed, or on to the next epoch in the middle of one: what the policy still waits for will not come.
  const auto& now = consumer.follower.current();
  const std::size_t passed = before == nullptr ? 0 : (now.get() == before ? now->frontier() : length) - from;
  if (consumer.in_future && passed > window) outpaced_ = true;
  if (verdict == Verdict::kExpected || verdict == Verdict::kFound) CountExpected(consumer, 1);
  // An epoch that is through: what is read again is not what comes next.
  const bool repeated = verdict == Verdict::kRepeated && !now->finished();
  // Nor is what one reader reads again, while the plan's other readers do as they should; nor what an order drawn with replacement has more than once.
  const bool others_right = reader != nullptr && consumer.right > (reader->wrong == 0 ? 1u : 0u);
  const bool strange = verdict == Verdict::kAgain && (others_right || consumer.plan.replacement);
  if (verdict != Verdict::kHeld && !repeated && !strange) {
    const double weight = 1.0 / std::clamp<std::uint32_t>(now->window() / 4, 16, 256);
    const bool right = (verdict == Verdict::kExpected && !(back && now.get() == before)) || verdict == Verdict::kShared;
    consumer.doubt += weight * ((right ? 0.0 : 1.0) - consumer.doubt);
  }
  if (verdict == Verdict::kFound) consumer.doubt = 0;  // the accesses that looked wrong were right
  consumer.trusted = consumer.doubt < kTolerated;
  return verdict;
}

void Foresight::CountExpected(Followed& consumer, std::uint64_t accesses) {
  if (accesses == 0) return;
  consumer.read = true;
  last_expected_ns_ = clock_.MonotonicNs();
  consumer.expected += accesses;
  if (!consumer.in_future) return;
  // What was left of an epoch when the next one began, or was in it twice, is not ahead any more.
  const std::uint64_t begun = consumer.follower.epochs_begun();
  if (std::exchange(consumer.left_epoch, begun) != begun) consumed_ += std::exchange(consumer.left, consumer.follower.current()->order().size());
  consumer.left -= std::min(consumer.left, accesses);
  consumed_ += accesses;
}

// ---- the future ------------------------------------------------------------------------------------------------------------

void Foresight::Prepare(Followed& consumer) {
  const bool handed = workers_.Run([orders = consumer.follower.Ask()] { return orders::PlanFollower::Prepare(orders); },
                                   [this, id = consumer.id](std::optional<orders::PlanFollower::Epoch> epoch) {
                                     if (Followed* const one = Find(id)) CountExpected(*one, one->follower.Add(std::move(epoch)));
                                     wake_();
                                   });
  if (!handed) Remove(consumer.id);  // no memory for a plan
}

bool Foresight::Doubted() const {
  return std::any_of(consumers_.begin(), consumers_.end(), [](const auto& one) { return one->in_future && !one->trusted; });
}

bool Foresight::IsStale() const {
  std::size_t members = 0;
  for (const auto& one : consumers_) {
    if (!one->in_future && one->eligible()) return true;
    members += one->in_future ? 1 : 0;
  }
  return members != members_ || outpaced_ || Doubted() || (future_ != nullptr && told_to_ != unit_.policy.incarnation());
}

// What the policy was told does not hold any more. True: it knows nothing now.
bool Foresight::Replace() {
  if (unit_.policy.changing()) return false;
  if (declared_ == 0 || told_to_ != unit_.policy.incarnation()) return true;
  if (renewed_ != told_to_ && renew_policy_()) renewed_ = told_to_;
  return false;
}

void Foresight::Begin() {
  std::vector<policies::MergedFuture::Consumer> merged;
  for (const auto& one : consumers_) {
    one->in_future = one->eligible();
    if (!one->in_future) continue;
    const auto& now = one->follower.current();
    one->merged_pace = one->pace;
    one->left = now->order().size() - now->frontier();
    one->left_epoch = one->follower.epochs_begun();
    merged.push_back({.now = now, .from = now->frontier(), .following = one->follower.following(), .pace = one->pace, .names = one->map.names()});
  }
  members_ = merged.size();
  future_ = merged.empty() ? nullptr : std::make_shared<policies::MergedFuture>(std::move(merged));
  ++future_number_;
  begun_ns_ = clock_.MonotonicNs();
  told_to_ = unit_.policy.incarnation();
  exhausted_ = outpaced_ = false;
  slice_ = {};
  slice_at_ = 0;
  slice_told_ = 0;
  declared_ = consumed_ = 0;
}

// Twice as many epochs as there are ranks: most samples come again within them. Memory of the policy: 4 bytes per entry.
std::uint64_t Foresight::Horizon() const {
  std::uint64_t entries = 0, ranks = 1;
  for (const auto& one : consumers_) {
    if (!one->in_future) continue;
    entries += one->follower.current()->order().size();
    ranks = std::max(ranks, one->plan.world);
  }
  return std::min(kMostAhead, entries * (1 + std::clamp<std::uint64_t>(2 * ranks, 4, 32)));
}

void Foresight::Compute() {
  if (future_ == nullptr || computing_ || exhausted_ || slice_at_ < slice_.names.size() || declared_ahead() >= Horizon()) return;
  computing_ = workers_.Run([future = future_] { return future->Next(kSlice); },
                            [this, number = future_number_](policies::MergedFuture::Slice slice) {
                              computing_ = false;
                              wake_();
                              if (number != future_number_) return;
                              exhausted_ = slice.names.empty();
                              if (slice.first == 0) slice_told_ = 0;
                              slice_ = std::move(slice);
                              slice_at_ = 0;
                            });
}

void Foresight::Declare() {
  objects_.clear();
  const std::size_t end = std::min(slice_.names.size(), slice_at_ + kDeclaredPerTurn);
  for (; slice_at_ < end && objects_.size() < kDeclaredPerTurn; ++slice_at_, ++declared_) {
    const auto file = static_cast<FileId>(slice_.names[slice_at_]);
    if (file == kNoFile || (catalogue_.file(file).flags & kFileUsed) == 0 || catalogue_.file(file).source != unit_.index) continue;
    const std::uint32_t chunks = catalogue_.ChunkCount(file);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) objects_.push_back(Raw(catalogue_.ObjectOf(file, chunk)));
  }
  unit_.policy.Plan(TIERD_CONSUMER_ALL, slice_.epoch, objects_, slice_told_);
  slice_told_ += static_cast<std::uint32_t>(objects_.size());
}

bool Foresight::told() const {
  return declared_ != 0 && std::any_of(consumers_.begin(), consumers_.end(), [](const auto& one) { return one->told; });
}

bool Foresight::trusted() const {
  return std::any_of(consumers_.begin(), consumers_.end(), [](const auto& one) { return one->trusted; });
}

bool Foresight::TakeUndeclared(std::string* path, FileId* file) {
  if (declared_ != 0) return false;
  for (std::size_t i = 0; i < consumers_.size(); ++i) {
    Followed& one = *consumers_[taken_turn_++ % consumers_.size()];
    const auto& now = one.follower.current();
    if (now == nullptr || !one.trusted) continue;
    if (std::exchange(one.taken_epoch, one.follower.epochs_begun()) != one.follower.epochs_begun()) one.taken = 0;
    one.taken = std::max(one.taken, now->frontier());
    while (one.taken < now->order().size()) {
      const std::uint32_t sample = now->order()[one.taken++];
      if (sample >= one.map.samples()) continue;
      *file = one.map.FileOf(sample);
      *path = *file != kNoFile ? catalogue_.PathOf(*file) : one.map.PathOf(sample);
      if (!path->empty()) return true;
    }
  }
  return false;
}

bool Foresight::Step() {
  bool more = false;
  for (std::size_t i = 0; i < consumers_.size(); ++i) {
    more |= consumers_[i]->map.Step();
    if (consumers_[i]->follower.WantsEpoch()) Prepare(*consumers_[i]);
  }
  if (!unit_.policy.takes_plans()) return more;
  if (IsStale()) {
    const bool may_rest = future_ != nullptr && told_to_ == unit_.policy.incarnation() && !Doubted();
    if ((!may_rest || clock_.MonotonicNs() - begun_ns_ >= kRestNs) && Replace()) Begin();
  }
  Compute();
  if (slice_at_ < slice_.names.size() && told_to_ == unit_.policy.incarnation() && !unit_.policy.changing()) Declare();
  return more || slice_at_ < slice_.names.size();
}

void Foresight::Tick() {
  const std::int64_t now = clock_.MonotonicNs();
  std::vector<std::uint64_t> ended;
  double slowest = 0, fastest = 0;
  for (const auto& one : consumers_) {
    const auto read = static_cast<double>(one->expected - std::exchange(one->expected_before, one->expected));
    if (read > 0) one->pace += (read - one->pace) * (one->pace == 0 ? 1 : kPaceMemory);
    if (read > 0 || one->readers > 0) one->last_reader_ns = now;
    pollfd process{.fd = one->process.get(), .events = POLLIN, .revents = 0};
    const bool gone = one->process.valid() ? ::poll(&process, 1, 0) > 0 : !one->keep && now - one->last_reader_ns > kIdleNs;
    if (gone || one->follower.over()) ended.push_back(one->id);
    if (!one->in_future || one->pace == 0) continue;
    const double share = one->pace / (one->merged_pace > 0 ? one->merged_pace : static_cast<double>(one->follower.current()->order().size()));
    slowest = slowest == 0 ? share : std::min(slowest, share);
    fastest = std::max(fastest, share);
  }
  outpaced_ = outpaced_ || (slowest > 0 && fastest > kOutpaced * slowest && now - begun_ns_ > 10 * kRestNs);
  for (const std::uint64_t id : ended) Remove(id);
}

}  // namespace tierd::engine
