// Readers of the whole protocol of LAYOUT.md (lookup, lease, location, last looks) in threads beside a writer that inserts, changes versions,
// evicts, erases, compacts and grows. Every word of a frame is a function of file and version, so that any wrong byte is seen. Meant for TSan too:
// readers and writer share one mapping, and the only order between them is what the protocol gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tierd/ram/ram_tier.h"
#include "tierd/ram/session_page.h"
#include "tierd/ram/shared_index.h"

namespace tierd::ram {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSteps = 20'000;
#else
constexpr int kSteps = 200'000;
#endif
constexpr std::uint32_t kFiles = 3000;  // names; about half of them exist at a time
constexpr int kReaders = 3;

abi::FileKey KeyOf(std::uint32_t n) { return {abi::Mix64(n + 1), abi::Mix64(~std::uint64_t{n})}; }
std::uint64_t WordOf(std::uint32_t n, std::uint64_t version) { return abi::Mix64((std::uint64_t{n} << 40) ^ version); }
std::uint32_t DeadlineOf(std::uint64_t version) { return static_cast<std::uint32_t>(abi::Mix64(version)) | 1; }

// Half of all accesses meet in a few files, so that readers and writer collide.
std::uint32_t PickFile(std::mt19937_64& random) { return static_cast<std::uint32_t>(random() % (random() % 2 == 0 ? 12 : kFiles)); }

// What a client would know through messages: the current index and the mapped segments.
struct Shared {
  std::atomic<const abi::IndexHeader*> index{nullptr};
  std::array<std::atomic<std::byte*>, 64> segments{};
  std::atomic<bool> stop{false};
};

class Reader {
 public:
  Reader(Shared& shared, abi::SessionPage* page, unsigned seed) : shared_(shared), page_(page), random_(seed) {}

  void Run() {
    page_->lease_high.store(8, std::memory_order_seq_cst);
    header_ = shared_.index.load(std::memory_order_acquire);
    while (!shared_.stop.load(std::memory_order_acquire)) {
      const std::uint32_t n = PickFile(random_);
      const std::uint32_t slot = static_cast<std::uint32_t>(random_() % 8);
      page_->leases[slot].store(0, std::memory_order_release);
      views_[slot] = View{};
      Get(n, slot);
      // A view that is held is still what it was, whatever happened in between.
      const View& old = views_[random_() % 8];
      if (old.data != nullptr) Verify(old);
    }
    for (auto& lease : page_->leases) lease.store(0, std::memory_order_release);
  }

  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t retries = 0;
  std::uint64_t wrong = 0;

 private:
  struct View {
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t word = 0;
  };

  const abi::Slot* Lookup(const abi::IndexHeader* header, abi::FileKey key, std::uint32_t& seq) const {
    const auto* slots = reinterpret_cast<const abi::Slot*>(reinterpret_cast<const std::byte*>(header) + header->slots_offset);
    const std::uint64_t home = abi::HomeSlot(key, header->slot_count);
    for (std::uint64_t i = home; i < home + header->probe_limit; ++i) {
      const abi::Slot& slot = slots[i];
      seq = slot.seq.load(std::memory_order_acquire);
      const abi::SlotKind kind = abi::KindOf(slot.size_attr.load(std::memory_order_acquire));
      if (kind == abi::SlotKind::kEmpty && seq % 2 == 0) return nullptr;
      if (slot.key_lo.load(std::memory_order_acquire) == key.lo && slot.key_hi.load(std::memory_order_acquire) == key.hi && seq % 2 == 0) return &slot;
    }
    return nullptr;
  }

  void Get(std::uint32_t n, std::uint32_t lease_slot) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      const abi::IndexHeader* const header = header_;
      // As a client: nothing but the `retired` word tells that there is a newer table.
      if (header->retired.load(std::memory_order_acquire) != 0) header_ = shared_.index.load(std::memory_order_acquire);
      std::uint32_t seq = 0;
      const abi::Slot* slot = Lookup(header, KeyOf(n), seq);
      const std::uint64_t first = slot == nullptr ? 0 : slot->location.load(std::memory_order_relaxed);
      if (first == 0) {
        ++misses;
        return;
      }
      const std::uint16_t fill = abi::DecodeLocation(first).fill;
      auto& lease = page_->leases[lease_slot];
      lease.exchange(abi::EncodeLease(abi::LeaseKeyOf(KeyOf(n)), fill), std::memory_order_seq_cst);
      const std::uint64_t word = slot->location.load(std::memory_order_acquire);
      const std::uint64_t size_attr = slot->size_attr.load(std::memory_order_acquire);
      const std::uint32_t deadline = slot->deadline.load(std::memory_order_acquire);
      const auto version = static_cast<std::uint64_t>(slot->mtime_ns.load(std::memory_order_acquire));
      const bool moved = slot->seq.load(std::memory_order_acquire) != seq || header->retired.load(std::memory_order_acquire) != 0;
      const abi::Location location = abi::DecodeLocation(word);
      if (moved || word == 0 || location.fill != fill) {
        lease.store(0, std::memory_order_release);
        ++retries;
        continue;
      }
      ++hits;
      if (deadline != DeadlineOf(version)) ++wrong;
      View view;
      view.data = shared_.segments[location.segment].load(std::memory_order_acquire) + location.offset;
      view.bytes = abi::SizeOf(size_attr);
      view.word = WordOf(n, version);
      Verify(view);
      views_[lease_slot] = view;
      return;
    }
  }

  void Verify(const View& view) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(view.data);
    for (std::uint64_t i = 0; i < view.bytes / 8; ++i) {
      if (words[i] != view.word) {
        ++wrong;
        return;
      }
    }
  }

  Shared& shared_;
  const abi::IndexHeader* header_ = nullptr;
  abi::SessionPage* page_;
  std::mt19937_64 random_;
  std::array<View, 8> views_;
};

class Writer {
 public:
  explicit Writer(Shared& shared)
      : shared_(shared), tier_({.budget_bytes = 3 << 20, .segment_bytes = 1 << 20, .max_frame_bytes = 16 << 10}, [this](OwnerId owner, FrameId from, FrameId to) {
          File& file = files_[owner];
          EXPECT_EQ(file.frame, from);
          file.frame = to;
          index_->SetLocation(index_->Find(KeyOf(owner))->ordinal, tier_.LocationWord(to));
        }) {
    IndexOptions options;
    options.initial_slots = 64;
    index_ = std::move(SharedIndex::Create(options)).value();
    SegmentOptions small;
    small.force_kind = abi::PageKind::k4KiB;
    SegmentFactory factory(small);
    for (SegmentTicket ticket = tier_.ReserveSegment(); ticket.bytes > 0; ticket = tier_.ReserveSegment()) {
      Segment segment = std::move(factory.Create(ticket.bytes)).value();
      shared_.segments[segment.serial()].store(segment.data(), std::memory_order_release);
      tier_.AddSegment(ticket, std::move(segment));
    }
    shared_.index.store(index_->header(), std::memory_order_release);
  }

  void Run() {
    for (int step = 0; step < kSteps; ++step) {
      const std::uint32_t n = PickFile(random_);
      switch (random_() % 10) {
        case 0: Erase(n); break;
        case 1: Evict(n); break;
        case 2: (void)tier_.CompactStep(16 << 10, 64 << 10); break;
        case 3: TouchDeadline(n); break;
        default: Fill(n); break;
      }
      Grow();
      // Hot reuse: nothing rests in limbo longer than its leases demand.
      if (step % 16 == 0) tier_.ReclaimLimbo(1000);
    }
  }

  RamTier& tier() { return tier_; }
  const SharedIndex& index() const { return *index_; }
  std::uint64_t fills = 0;
  std::uint64_t growths = 0;

 private:
  struct File {
    FrameId frame = kNoFrame;
    std::uint64_t version = 0;
  };

  // A new version of the file: slot first without a location, then the bytes, then the location.
  void Fill(std::uint32_t n) {
    Evict(n);
    const std::uint64_t bytes = 8 + random_() % 2000 / 8 * 8;
    const FrameId frame = tier_.Allocate(n, KeyOf(n), bytes, random_() % 8 == 0 ? 4096 : 64);
    if (frame == kNoFrame) {
      tier_.ReclaimLimbo(1000);
      for (int i = 0; i < 4; ++i) Evict(static_cast<std::uint32_t>(random_() % kFiles));
      return;
    }
    File& file = files_[n];
    file.version = ++version_;
    SlotValues values;
    values.kind = abi::SlotKind::kFile;
    values.size = bytes;
    values.mtime_ns = static_cast<std::int64_t>(file.version);
    values.deadline = DeadlineOf(file.version);
    const auto ordinal = index_->Insert(KeyOf(n), values, n);
    if (!ordinal) {
      tier_.Retire(frame);
      return;
    }
    auto* words = reinterpret_cast<std::uint64_t*>(tier_.Data(frame));
    std::fill(words, words + bytes / 8, WordOf(n, file.version));
    tier_.MarkLive(frame);
    file.frame = frame;
    index_->SetLocation(*ordinal, tier_.LocationWord(frame));
    ++fills;
  }
  void Evict(std::uint32_t n) {
    File& file = files_[n];
    if (file.frame == kNoFrame) return;
    index_->ClearLocation(index_->Find(KeyOf(n))->ordinal);
    tier_.Retire(std::exchange(file.frame, kNoFrame));
  }
  void Erase(std::uint32_t n) {
    const auto found = index_->Find(KeyOf(n));
    if (!found) return;
    index_->Erase(found->ordinal);  // clears the location too
    if (files_[n].frame != kNoFrame) tier_.Retire(std::exchange(files_[n].frame, kNoFrame));
  }
  void TouchDeadline(std::uint32_t n) {
    if (const auto found = index_->Find(KeyOf(n))) index_->SetDeadline(found->ordinal, index_->Read(found->ordinal).deadline);
  }
  void Grow() {
    if (index_->WantsGrowth()) {
      auto table = SharedIndex::CreateTable(index_->NextTable());
      ASSERT_TRUE(table.ok());
      ASSERT_TRUE(index_->AdoptTable(std::move(table).value()).ok());
    }
    if (index_->growing() && index_->GrowStep(8)) {
      // Readers of the old table are not stopped: they must notice. It stays mapped, as it does in a client.
      old_.push_back(index_->TakeRetired());
      shared_.index.store(index_->header(), std::memory_order_release);
      ++growths;
    }
  }

  Shared& shared_;
  RamTier tier_;
  std::unique_ptr<SharedIndex> index_;
  std::vector<std::unique_ptr<IndexTable>> old_;
  std::unordered_map<std::uint32_t, File> files_;
  std::mt19937_64 random_{99};
  std::uint64_t version_ = 0;
};

TEST(ProtocolStress, ReadersNeverSeeWrongBytes) {
  Shared shared;
  Writer writer(shared);
  std::vector<SessionPage> pages;
  std::vector<std::unique_ptr<Reader>> readers;
  std::vector<std::thread> threads;
  for (int i = 0; i < kReaders; ++i) pages.push_back(std::move(SessionPage::Create({})).value());
  for (int i = 0; i < kReaders; ++i) {
    writer.tier().leases().Add(pages[static_cast<std::size_t>(i)].page());
    readers.push_back(std::make_unique<Reader>(shared, pages[static_cast<std::size_t>(i)].page(), static_cast<unsigned>(i) + 1));
    threads.emplace_back([reader = readers.back().get()] { reader->Run(); });
  }
  writer.Run();
  shared.stop.store(true, std::memory_order_release);
  for (std::thread& thread : threads) thread.join();

  std::uint64_t hits = 0;
  std::uint64_t retries = 0;
  for (const auto& reader : readers) {
    EXPECT_EQ(reader->wrong, 0u);
    hits += reader->hits;
    retries += reader->retries;
  }
  const RamTierStats stats = writer.tier().stats();
  std::printf("%llu hits, %llu retries, %llu fills, %llu frames moved, %llu growths\n", static_cast<unsigned long long>(hits),
              static_cast<unsigned long long>(retries), static_cast<unsigned long long>(writer.fills),
              static_cast<unsigned long long>(stats.compaction.frames_moved), static_cast<unsigned long long>(writer.growths));
  EXPECT_GT(hits, 1000u);
  EXPECT_GT(writer.growths, 3u);
  EXPECT_GT(stats.compaction.frames_moved, 10u);
  // All leases gone: limbo empties.
  writer.tier().ReclaimLimbo(1 << 20);
  EXPECT_EQ(writer.tier().stats().allocator.limbo_frames, 0u);
}

}  // namespace
}  // namespace tierd::ram
