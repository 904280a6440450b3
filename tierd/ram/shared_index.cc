#include "tierd/ram/shared_index.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tierd/base/check.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t RoundSlots(std::uint64_t slots) { return (slots + 63) / 64 * 64; }

IndexTableOptions TableOptions(const IndexOptions& options, std::uint64_t slots, std::uint32_t generation) {
  IndexTableOptions table;
  table.slot_count = slots;
  table.generation = generation;
  std::memcpy(table.instance, options.instance, sizeof table.instance);
  std::memcpy(table.hash_secret, options.hash_secret, sizeof table.hash_secret);
  table.tmpfs = options.tmpfs;
  return table;
}

}  // namespace

std::size_t SharedIndex::AttrHash::operator()(const abi::AttrClass& a) const {
  std::uint64_t h = abi::Mix64(a.dev + 0x9e3779b97f4a7c15ull);
  h = abi::Mix64(h ^ ((std::uint64_t{a.mode} << 32) | a.nlink));
  h = abi::Mix64(h ^ ((std::uint64_t{a.uid} << 32) | a.gid));
  return abi::Mix64(h ^ a.blksize);
}

bool SharedIndex::AttrEqual::operator()(const abi::AttrClass& a, const abi::AttrClass& b) const {
  return a.dev == b.dev && a.mode == b.mode && a.uid == b.uid && a.gid == b.gid && a.nlink == b.nlink && a.blksize == b.blksize;
}

Result<std::unique_ptr<SharedIndex>> SharedIndex::Create(const IndexOptions& options) {
  std::unique_ptr<SharedIndex> index(new SharedIndex(options));
  const std::uint64_t slots = RoundSlots(std::clamp<std::uint64_t>(options.initial_slots, 64, options.max_slots));
  Result<std::unique_ptr<IndexTable>> table = IndexTable::Create(TableOptions(options, slots, 1));
  if (!table.ok()) return table.status();
  index->current_ = std::move(*table);
  // Begins where no other daemon's does, so that a reader which has met two of them notices.
  std::uint64_t begin;
  std::memcpy(&begin, options.instance, sizeof begin);
  index->current_->header()->changes.store((begin & ~std::uint64_t{1}) | 2,
                                           std::memory_order_relaxed);
  return index;
}

std::optional<SharedIndex::Found> SharedIndex::Find(abi::FileKey key) const {
  const auto ordinal = current_->Find(key);
  if (!ordinal) return std::nullopt;
  return Found{*ordinal, current_->owner(*ordinal)};
}

std::optional<std::uint32_t> SharedIndex::Twin(std::uint32_t ordinal) const {
  if (next_ == nullptr || ordinal >= cursor_) return std::nullopt;
  const auto twin = next_->Find(current_->KeyAt(ordinal));
  TIERD_CHECK(twin.has_value());
  return twin;
}

std::optional<std::uint32_t> SharedIndex::Insert(abi::FileKey key, const SlotValues& values, OwnerId owner) {
  if (const auto there = current_->Find(key)) {
    Update(*there, values);
    SetOwner(*there, owner);
    return there;
  }
  // Beyond 7/8 the clusters are so long that every miss of every client pays for it.
  std::optional<std::uint32_t> ordinal;
  if (current_->live() < current_->slot_count() / 8 * 7) ordinal = current_->Insert(key, values, owner);
  if (!ordinal) {
    insert_failed_ = true;
    ++refused_;
    return std::nullopt;
  }
  if (next_ != nullptr && *ordinal < cursor_ && !next_->Insert(key, values, owner)) Abandon();
  return ordinal;
}

// Around a change that readers must hear of: `changes` is odd meanwhile, so that a reader which has
// seen the slot as it was before does not take that for the last word.
class SharedIndex::Changing {
 public:
  explicit Changing(std::atomic<std::uint64_t>* word) : word_(word) {
    if (word_ != nullptr) word_->fetch_add(1, std::memory_order_seq_cst);
  }
  ~Changing() {
    if (word_ != nullptr) word_->fetch_add(1, std::memory_order_seq_cst);
  }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

 private:
  std::atomic<std::uint64_t>* const word_;
};

bool SharedIndex::OfFile(std::uint32_t ordinal) const {
  const abi::SlotKind kind = current_->Kind(ordinal);
  return kind == abi::SlotKind::kFile || kind == abi::SlotKind::kChunked ||
         kind == abi::SlotKind::kAlias;
}

namespace {
// Nobody keeps bytes of a file that only a walk has seen so far: it has no times yet.
bool HasVersion(const SlotValues& a) { return a.mtime_ns != 0 || a.ctime_ns != 0; }
bool SameVersion(const SlotValues& a, const SlotValues& b) {
  return a.kind == b.kind && a.size == b.size && a.ino == b.ino && a.mtime_ns == b.mtime_ns &&
         a.ctime_ns == b.ctime_ns;
}
}  // namespace

void SharedIndex::Update(std::uint32_t ordinal, const SlotValues& values) {
  const SlotValues before = current_->Read(ordinal);
  const bool changes = OfFile(ordinal) && HasVersion(before) && !SameVersion(before, values);
  const Changing changing(changes ? &current_->header()->changes : nullptr);
  current_->Update(ordinal, values);
  if (const auto twin = Twin(ordinal)) next_->Update(*twin, values);
}

void SharedIndex::SetLocation(std::uint32_t ordinal, std::uint64_t location) {
  current_->SetLocation(ordinal, location);
  if (const auto twin = Twin(ordinal)) next_->SetLocation(*twin, location);
}

void SharedIndex::SetDeadline(std::uint32_t ordinal, std::uint32_t deadline) {
  const Changing changing(deadline == abi::kDeadlineExpired && OfFile(ordinal)
                              ? &current_->header()->changes
                              : nullptr);
  current_->SetDeadline(ordinal, deadline);
  if (const auto twin = Twin(ordinal)) next_->SetDeadline(*twin, deadline);
}

void SharedIndex::SetOwner(std::uint32_t ordinal, OwnerId owner) {
  current_->set_owner(ordinal, owner);
  if (const auto twin = Twin(ordinal)) next_->set_owner(*twin, owner);
}

void SharedIndex::Erase(std::uint32_t ordinal) {
  const Changing changing(OfFile(ordinal) ? &current_->header()->changes : nullptr);
  if (const auto twin = Twin(ordinal)) next_->Erase(*twin);
  current_->Erase(ordinal);
}

void SharedIndex::NoteChange() {
  current_->header()->changes.fetch_add(2, std::memory_order_seq_cst);
}

std::optional<OwnerId> SharedIndex::OwnerAt(std::uint8_t generation_low, std::uint32_t ordinal) const {
  for (const IndexTable* table : {current_.get(), retired_.get()}) {
    if (table == nullptr || (table->header()->generation & 0xffu) != generation_low) continue;
    const OwnerId owner = table->owner(ordinal);
    return owner == kNoOwner ? std::nullopt : std::optional(owner);
  }
  return std::nullopt;
}

void SharedIndex::PrefetchOwnerAt(std::uint8_t generation_low, std::uint32_t ordinal) const {
  for (const IndexTable* table : {current_.get(), retired_.get()}) {
    if (table != nullptr && (table->header()->generation & 0xffu) == generation_low) return table->PrefetchOwner(ordinal);
  }
}

std::uint32_t SharedIndex::AttrClass(const abi::AttrClass& attrs) {
  if (const auto known = classes_.find(attrs); known != classes_.end()) return known->second;
  const std::uint32_t limit = attrs.mode == 0 ? abi::kMaxAttrClasses : S_ISDIR(attrs.mode) ? abi::kMaxAttrClasses / 2 : abi::kMaxAttrClasses - kBareClasses;
  if (next_class_ >= limit) return attrs.mode == 0 ? 0 : AttrClass({.dev = attrs.dev});
  const std::uint32_t id = next_class_++;
  // Complete before any slot names it: the slot's even sequence is stored later, with release.
  current_->attrs()[id] = attrs;
  if (next_ != nullptr) next_->attrs()[id] = attrs;
  classes_.emplace(attrs, id);
  return id;
}

abi::AttrClass SharedIndex::Attrs(std::uint32_t attr_class) const {
  return attr_class < abi::kMaxAttrClasses ? current_->attrs()[attr_class] : abi::AttrClass{};
}

void SharedIndex::Heartbeat(std::int64_t monotonic_coarse_ns) {
  const std::uint32_t ticks = abi::TicksOf(monotonic_coarse_ns);
  current_->header()->heartbeat_ticks.store(ticks, std::memory_order_relaxed);
  if (next_ != nullptr) next_->header()->heartbeat_ticks.store(ticks, std::memory_order_relaxed);
}

std::uint32_t SharedIndex::NoteSegmentGone(std::uint32_t serial, std::uint32_t oldest) {
  const std::uint32_t before = current_->header()->segments_gone.load(std::memory_order_relaxed);
  for (IndexTable* table : {current_.get(), next_.get()}) {
    if (table == nullptr) continue;
    abi::IndexHeader& header = *table->header();
    header.gone_segments[before % abi::kGoneSegments].store(serial, std::memory_order_relaxed);
    header.oldest_segment.store(oldest, std::memory_order_relaxed);
    header.segments_gone.store(before + 1, std::memory_order_release);
  }
  return before + 1;
}

void SharedIndex::Retire() {
  current_->header()->retired.store(1, std::memory_order_seq_cst);
  current_->header()->changes.fetch_add(2, std::memory_order_seq_cst);
}

// ---- growth -------------------------------------------------------------------------------------------------------------------

bool SharedIndex::WantsGrowth() const {
  if (next_ != nullptr) return false;
  const std::uint64_t used = current_->live() + current_->tombstones();
  if (used * 4 < current_->slot_count() * 3 && !insert_failed_) return false;
  // At the hard limit a new table of the same size helps only against tombstones.
  return NextTable().slot_count > current_->slot_count() || current_->tombstones() > current_->slot_count() / 16;
}

IndexTableOptions SharedIndex::NextTable(std::uint64_t expected_live) const {
  std::uint64_t slots = std::max(current_->live() * 16 / 9, options_.initial_slots);  // load 9/16: 4/3 x at a load of 3/4
  slots = std::max(slots, expected_live + expected_live / 2);                         // load 2/3: all of them before the next growth
  if (insert_failed_) slots = std::max(slots, current_->slot_count() + current_->slot_count() / 2);
  return TableOptions(options_, RoundSlots(std::clamp<std::uint64_t>(slots, 64, options_.max_slots)), generation() + 1);
}

Status SharedIndex::AdoptTable(std::unique_ptr<IndexTable> table) {
  if (next_ != nullptr) return Status(Code::kBusy, "the index is growing already");
  if (table->header()->generation != generation() + 1) return Status(Code::kInvalid, "index table of another generation");
  if (current_->live() * 4 >= table->slot_count() * 3 && table->slot_count() < options_.max_slots) {
    return Status(Code::kInvalid, "index table of " + std::to_string(table->slot_count()) + " slots is too small by now");
  }
  next_ = std::move(table);
  cursor_ = 0;
  insert_failed_ = false;
  std::copy(current_->attrs().begin(), current_->attrs().end(), next_->attrs().begin());
  const abi::IndexHeader& now = *current_->header();
  abi::IndexHeader& next = *next_->header();
  next.heartbeat_ticks.store(now.heartbeat_ticks.load(std::memory_order_relaxed), std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < abi::kGoneSegments; ++i) {
    next.gone_segments[i].store(now.gone_segments[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  next.oldest_segment.store(now.oldest_segment.load(std::memory_order_relaxed), std::memory_order_relaxed);
  next.segments_gone.store(now.segments_gone.load(std::memory_order_relaxed), std::memory_order_relaxed);
  return Status::Ok();
}

bool SharedIndex::GrowStep(std::uint32_t budget_slots) {
  if (next_ == nullptr) return false;
  const std::uint64_t end = std::min(cursor_ + budget_slots, current_->total_slots());
  for (; cursor_ < end; ++cursor_) {
    const auto ordinal = static_cast<std::uint32_t>(cursor_);
    if (!current_->Occupied(ordinal)) continue;
    if (!next_->Insert(current_->KeyAt(ordinal), current_->Read(ordinal), current_->owner(ordinal))) {
      Abandon();
      return false;
    }
  }
  if (cursor_ < current_->total_slots()) return false;
  Publish();
  return true;
}

// A cluster beyond the probe limit in the new table: not seen below a load of .9; the next one will be larger.
void SharedIndex::Abandon() {
  next_.reset();
  cursor_ = 0;
  insert_failed_ = true;
}

// The new table is complete. Readers of the old one must know before the first change that only the new one sees (M8, M9, M9b).
void SharedIndex::Publish() {
  next_->header()->changes.store(current_->header()->changes.load(std::memory_order_relaxed) + 2,
                                 std::memory_order_relaxed);
  current_->header()->retired.store(1, std::memory_order_seq_cst);
  current_->header()->changes.fetch_add(2, std::memory_order_seq_cst);
  retired_ = std::move(current_);
  current_ = std::move(next_);
  cursor_ = 0;
}

std::uint64_t SharedIndex::memory_bytes() const {
  std::uint64_t sum = 0;
  for (const IndexTable* table : {current_.get(), next_.get(), retired_.get()}) sum += table == nullptr ? 0 : table->memory_bytes();
  return sum;
}

}  // namespace tierd::ram
