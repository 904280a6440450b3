#include "tierd/ram/index_table.h"

#include <sys/mman.h>

#include <cstring>

#include "tierd/base/check.h"
#include "tierd/base/prefetch.h"
#include "tierd/ram/shared_file.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t kAttrsBytes = sizeof(abi::AttrClass) * abi::kMaxAttrClasses;
constexpr std::uint64_t kSlotsOffset = abi::kIndexHeaderBytes + kAttrsBytes;
static_assert(kSlotsOffset % 4096 == 0);
constexpr std::uint64_t kHugeFrom = 8 << 20;  // smaller tables would waste too much of their last page
constexpr std::uint32_t kProbeLimit = static_cast<std::uint32_t>(abi::kProbeSlack);

constexpr auto kRelaxed = std::memory_order_relaxed;

// Marks a slot as being changed for as long as it lives: odd sequence before the first store, even after the last.
class SlotChange {
 public:
  explicit SlotChange(abi::Slot& slot) : slot_(slot), seq_(slot.seq.load(kRelaxed)) {
    slot_.seq.store(seq_ + 1, kRelaxed);
    std::atomic_thread_fence(std::memory_order_release);  // no later store becomes visible before the odd number
  }
  ~SlotChange() { slot_.seq.store(seq_ + 2, std::memory_order_release); }
  SlotChange(const SlotChange&) = delete;
  SlotChange& operator=(const SlotChange&) = delete;

 private:
  abi::Slot& slot_;
  const std::uint32_t seq_;
};

abi::SlotKind KindAt(const abi::Slot& slot) { return abi::KindOf(slot.size_attr.load(kRelaxed)); }

}  // namespace

Result<std::unique_ptr<IndexTable>> IndexTable::Create(const IndexTableOptions& options) {
  if (options.slot_count < 64 || options.slot_count + abi::kProbeSlack > 0xffffffffu) {
    return Status(Code::kInvalid, "index of " + std::to_string(options.slot_count) + " slots");
  }
  std::unique_ptr<IndexTable> table(new IndexTable);
  table->slot_count_ = options.slot_count;
  const std::uint64_t atimes_offset = kSlotsOffset + table->total_slots() * sizeof(abi::Slot);
  const std::uint64_t wanted = atimes_offset + table->total_slots() * sizeof(std::int64_t);
  if (wanted < kHugeFrom || !table->MakeTmpfsMemory(options.tmpfs, (wanted + kHugePage - 1) / kHugePage * kHugePage).ok()) {
    if (Status status = table->MakeMemfdMemory((wanted + 4095) / 4096 * 4096); !status.ok()) return status;
  }
  auto* const header = reinterpret_cast<abi::IndexHeader*>(table->data_);
  header->magic = abi::kIndexMagic;
  header->layout_version = abi::kLayoutVersion;
  header->generation = options.generation;
  std::memcpy(header->instance, options.instance, sizeof header->instance);
  header->slot_count = options.slot_count;
  header->attrs_offset = abi::kIndexHeaderBytes;
  header->slots_offset = kSlotsOffset;
  header->atimes_offset = atimes_offset;
  header->total_bytes = table->bytes_;
  header->probe_limit = kProbeLimit;
  std::memcpy(header->hash_secret, options.hash_secret, sizeof header->hash_secret);
  table->header_ = header;
  table->attrs_ = reinterpret_cast<abi::AttrClass*>(table->data_ + abi::kIndexHeaderBytes);
  table->slots_ = reinterpret_cast<abi::Slot*>(table->data_ + kSlotsOffset);  // zero pages: every slot is kEmpty
  table->atimes_ = reinterpret_cast<std::atomic<std::int64_t>*>(table->data_ + atimes_offset);
  table->owners_.resize(table->total_slots(), kNoOwner);
  return table;
}

// Sealed: with the last writable mapping made, nobody can make another one or change the size.
Status IndexTable::MakeMemfdMemory(std::uint64_t bytes) {
  Result<UniqueFd> fd = MakeMemfd("tierd-index", bytes);
  if (!fd.ok()) return fd.status();
  Result<std::byte*> data = MapShared(fd->get(), bytes);
  if (!data.ok()) return data.status();
  data_ = *data;
  bytes_ = bytes;
  // The advice must come before the pages: fallocate knows of no advice and would make small ones. Ignored where the knob is off.
  (void)::madvise(data_, bytes, MADV_HUGEPAGE);
  if (Status status = TouchPages(data_, bytes); !status.ok()) return status;
  if (Status status = AllocateFile(fd->get(), bytes); !status.ok()) return status;
  huge_ = HugeMappedBytes(data_, bytes) * 2 > bytes;
  if (Status status = SealFile(fd->get(), true); !status.ok()) return status;
  Result<UniqueFd> client = OpenReadOnly(fd->get());
  if (!client.ok()) return client.status();
  client_fd_ = std::move(*client);
  return Status::Ok();
}

// 2 MiB pages where memfds have none: with 4 KiB pages a look into a table of a million files costs a walk of the page tables beside the line itself,
// 210 ns against 115 (measured). A tmpfs file takes no seals; what they forbid is impossible here
// because the only descriptor that is kept was opened through a read-only mount (private_tmpfs.h).
// The writable one is closed at the end of this function.
Status IndexTable::MakeTmpfsMemory(const PrivateTmpfs* tmpfs, std::uint64_t bytes) {
  if (tmpfs == nullptr) return Status(Code::kUnsupported, "there is no private tmpfs");
  if (GivesHugePages(ChosenWord(kShmemEnabledPath))) return Status(Code::kUnsupported, "memfds have huge pages");
  Result<PrivateTmpfs::File> file = tmpfs->MakeFile("tierd-index", bytes);
  if (!file.ok()) return file.status();
  Result<std::byte*> data = MapShared(file->writable.get(), bytes);
  if (!data.ok()) return data.status();
  (void)::madvise(*data, bytes, MADV_HUGEPAGE);
  if (!TouchPages(*data, bytes).ok() || !AllocateFile(file->writable.get(), bytes).ok() || HugeMappedBytes(*data, bytes) * 2 < bytes) {
    ::munmap(*data, bytes);
    return Status(Code::kUnsupported, "tmpfs gave no 2 MiB pages");
  }
  data_ = *data;
  bytes_ = bytes;
  huge_ = true;
  client_fd_ = std::move(file->read_only);
  return Status::Ok();
}

IndexTable::~IndexTable() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

std::optional<std::uint32_t> IndexTable::Find(abi::FileKey key) const {
  const std::uint64_t home = abi::HomeSlot(key, slot_count_);
  for (std::uint64_t i = home; i < home + kProbeLimit; ++i) {
    const abi::Slot& slot = slots_[i];
    const abi::SlotKind kind = KindAt(slot);
    if (kind == abi::SlotKind::kEmpty) return std::nullopt;
    if (kind == abi::SlotKind::kTombstone) continue;
    if (slot.key_lo.load(kRelaxed) == key.lo && slot.key_hi.load(kRelaxed) == key.hi) return static_cast<std::uint32_t>(i);
  }
  return std::nullopt;
}

void IndexTable::WriteSlot(std::uint32_t ordinal, abi::FileKey key, const SlotValues& values) {
  abi::Slot& slot = slots_[ordinal];
  const SlotChange change(slot);
  slot.key_lo.store(key.lo, kRelaxed);
  slot.key_hi.store(key.hi, kRelaxed);
  slot.size_attr.store(abi::EncodeSizeAttr(values.size, values.attr_class, values.kind), kRelaxed);
  slot.deadline.store(values.deadline, kRelaxed);
  slot.mtime_ns.store(values.mtime_ns, kRelaxed);
  slot.ctime_ns.store(values.ctime_ns, kRelaxed);
  slot.ino.store(values.ino, kRelaxed);
  atimes_[ordinal].store(values.atime_ns, kRelaxed);
  slot.location.store(values.location, std::memory_order_release);
}

std::optional<std::uint32_t> IndexTable::Insert(abi::FileKey key, const SlotValues& values, OwnerId owner) {
  TIERD_CHECK(values.kind > abi::SlotKind::kTombstone);
  const std::uint64_t home = abi::HomeSlot(key, slot_count_);
  for (std::uint64_t i = home; i < home + kProbeLimit; ++i) {
    const abi::SlotKind kind = KindAt(slots_[i]);
    if (kind > abi::SlotKind::kTombstone) continue;
    if (kind == abi::SlotKind::kTombstone) --tombstones_;
    ++live_;
    owners_[i] = owner;
    const auto ordinal = static_cast<std::uint32_t>(i);
    WriteSlot(ordinal, key, values);
    return ordinal;
  }
  return std::nullopt;
}

void IndexTable::Update(std::uint32_t ordinal, const SlotValues& values) {
  TIERD_CHECK(Occupied(ordinal) && values.kind > abi::SlotKind::kTombstone);
  WriteSlot(ordinal, KeyAt(ordinal), values);
}

void IndexTable::SetDeadline(std::uint32_t ordinal, std::uint32_t deadline) {
  abi::Slot& slot = slots_[ordinal];
  const SlotChange change(slot);
  slot.deadline.store(deadline, kRelaxed);
}

void IndexTable::SetLocation(std::uint32_t ordinal, std::uint64_t location) {
  // Release: the bytes of the frame before its location. A clear is ordered before the scan by the scanner's fence.
  slots_[ordinal].location.store(location, std::memory_order_release);
}

// A tombstone that is followed by an empty slot ends no probe but its own: it, and those before it, become empty again.
void IndexTable::Erase(std::uint32_t ordinal) {
  TIERD_CHECK(Occupied(ordinal));
  --live_;
  ++tombstones_;
  SlotValues gone;
  gone.kind = abi::SlotKind::kTombstone;
  WriteSlot(ordinal, {}, gone);
  owners_[ordinal] = kNoOwner;
  if (ordinal + 1 < total_slots() && KindAt(slots_[ordinal + 1]) != abi::SlotKind::kEmpty) return;
  for (std::uint64_t i = ordinal + std::uint64_t{1}; i-- > 0 && KindAt(slots_[i]) == abi::SlotKind::kTombstone;) {
    WriteSlot(static_cast<std::uint32_t>(i), {}, SlotValues{});
    --tombstones_;
  }
}

SlotValues IndexTable::Read(std::uint32_t ordinal) const {
  const abi::Slot& slot = slots_[ordinal];
  const std::uint64_t size_attr = slot.size_attr.load(kRelaxed);
  SlotValues values;
  values.size = abi::SizeOf(size_attr);
  values.attr_class = abi::AttrClassOf(size_attr);
  values.kind = abi::KindOf(size_attr);
  values.deadline = slot.deadline.load(kRelaxed);
  values.location = slot.location.load(kRelaxed);
  values.mtime_ns = slot.mtime_ns.load(kRelaxed);
  values.ctime_ns = slot.ctime_ns.load(kRelaxed);
  values.ino = slot.ino.load(kRelaxed);
  values.atime_ns = atimes_[ordinal].load(kRelaxed);
  return values;
}

abi::FileKey IndexTable::KeyAt(std::uint32_t ordinal) const {
  return {slots_[ordinal].key_lo.load(kRelaxed), slots_[ordinal].key_hi.load(kRelaxed)};
}

void IndexTable::PrefetchOwner(std::uint32_t ordinal) const {
  if (ordinal < total_slots()) PrefetchToRead(&owners_[ordinal]);
}

bool IndexTable::Occupied(std::uint32_t ordinal) const { return ordinal < total_slots() && KindAt(slots_[ordinal]) > abi::SlotKind::kTombstone; }

}  // namespace tierd::ram
