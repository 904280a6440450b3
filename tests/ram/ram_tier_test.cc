#include "tierd/ram/ram_tier.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <random>
#include <unordered_map>

#include "tests/ram/size_mix.h"
#include "tierd/ram/session_page.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

abi::FileKey KeyOf(std::uint64_t n) { return {abi::Mix64(n + 1), abi::Mix64(n + 77)}; }

SegmentOptions SmallPages() {
  SegmentOptions options;
  options.force_kind = abi::PageKind::k4KiB;
  options.seal = SegmentSeal::kShrink;  // can be punched
  return options;
}

// An engine in miniature: owners know their frames and publish location words; content is a function of the owner.
class RamTierTest : public testing::Test {
 protected:
  void Start(RamTierOptions options) {
    tier = std::make_unique<RamTier>(options, [this](OwnerId owner, FrameId from, FrameId to) {
      EXPECT_EQ(frames.at(owner), from);
      frames[owner] = to;
      EXPECT_NE(tier->LocationWord(from), tier->LocationWord(to));
    });
    while (AddSegment()) {
    }
  }
  bool AddSegment() {
    const SegmentTicket ticket = tier->ReserveSegment();
    CheckBudget();
    if (ticket.bytes == 0) return false;
    Result<Segment> segment = factory.Create(ticket.bytes);
    EXPECT_TRUE(segment.ok()) << segment.status().message();
    tier->AddSegment(ticket, std::move(segment).value());
    CheckBudget();
    return true;
  }
  void CheckBudget() const {
    const RamTierStats stats = tier->stats();
    if (!tier->shrinking()) {
      ASSERT_LE(stats.allocator.segment_bytes - stats.hollow_bytes + stats.reserved_bytes, budget_ceiling);
    }
  }
  static std::byte Content(OwnerId owner, std::uint64_t at) { return static_cast<std::byte>(abi::Mix64((std::uint64_t{owner} << 32) ^ (at / 8)) >> (at % 8 * 8)); }
  bool Insert(OwnerId owner, std::uint64_t bytes, std::uint32_t align = 64) {
    FrameId frame = tier->Allocate(owner, KeyOf(owner), bytes, align);
    for (int i = 0; frame == kNoFrame && i < 25; ++i) {
      const Compactor::Outcome outcome = tier->CompactStep(bytes);
      frame = tier->Allocate(owner, KeyOf(owner), bytes, align);
      if (outcome == Compactor::Outcome::kNothing) break;
    }
    if (frame == kNoFrame) return false;
    Fill(frame, owner, bytes);
    return true;
  }
  void Fill(FrameId frame, OwnerId owner, std::uint64_t bytes) {
    std::byte* data = tier->Data(frame);
    for (std::uint64_t i = 0; i < bytes; i += 61) data[i] = Content(owner, i);
    tier->MarkLive(frame);
    frames[owner] = frame;
  }
  void Check(OwnerId owner) const {
    const FrameId frame = frames.at(owner);
    const std::byte* data = tier->Data(frame);
    for (std::uint64_t i = 0; i < tier->Bytes(frame); i += 61) ASSERT_EQ(data[i], Content(owner, i)) << "owner " << owner << " byte " << i;
  }
  void Evict(OwnerId owner) {
    tier->Retire(frames.at(owner));
    frames.erase(owner);
  }
  std::uint64_t LeaseWordOf(FrameId frame) const { return abi::EncodeLease(abi::LeaseKeyOf(KeyOf(tier->Owner(frame))), abi::DecodeLocation(tier->LocationWord(frame)).fill); }

  SegmentFactory factory{SmallPages()};
  std::unique_ptr<RamTier> tier;
  std::map<OwnerId, FrameId> frames;
  std::uint64_t budget_ceiling = ~std::uint64_t{0};
};

TEST_F(RamTierTest, LocationWordsNameSegmentOffsetAndFill) {
  Start({.budget_bytes = 8 * kMiB, .segment_bytes = 8 * kMiB});
  ASSERT_TRUE(Insert(1, 784));
  ASSERT_TRUE(Insert(2, 784));
  const abi::Location one = abi::DecodeLocation(tier->LocationWord(frames[1]));
  const abi::Location two = abi::DecodeLocation(tier->LocationWord(frames[2]));
  EXPECT_EQ(one.segment, 1u);
  EXPECT_EQ(one.offset, 0u);
  EXPECT_EQ(two.offset, 832u);
  EXPECT_NE(one.fill, 0u);
  EXPECT_NE(one.fill, two.fill);
  const Segment* segment = tier->FindSegment(one.segment);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(segment->data() + two.offset, tier->Data(frames[2]));
  EXPECT_EQ(tier->FindSegment(99), nullptr);
}

TEST_F(RamTierTest, BytesBeyondThePayloadAreZero) {
  Start({.budget_bytes = 8 * kMiB, .segment_bytes = 8 * kMiB});
  const FrameId frame = tier->Allocate(1, KeyOf(1), 5000, 4096);
  ASSERT_NE(frame, kNoFrame);
  EXPECT_EQ(tier->Capacity(frame), 8192u);
  std::memset(tier->Data(frame), 0xff, 8192);
  tier->MarkLive(frame);
  EXPECT_EQ(tier->Data(frame)[4999], std::byte{0xff});
  for (std::uint64_t i = 5000; i < 8192; ++i) ASSERT_EQ(tier->Data(frame)[i], std::byte{0});
}

// What was evicted by the million comes free some at a step, whoever asks (HAZARDS 5).
TEST_F(RamTierTest, AStepFreesNoMoreThanItsShare) {
  constexpr OwnerId kFrames = 60'000;
  constexpr std::size_t kPerStep = 8192;
  Start({.budget_bytes = 64 * kMiB, .segment_bytes = 16 * kMiB});
  for (OwnerId owner = 0; owner < kFrames; ++owner) ASSERT_TRUE(Insert(owner, 784));
  for (OwnerId owner = 0; owner < kFrames; ++owner) Evict(owner);
  (void)tier->CompactStep(4 * kMiB);
  EXPECT_GE(tier->limbo_frames(), kFrames - kPerStep);
  tier->set_budget(16 * kMiB);
  ASSERT_GT(tier->Shrink(tier->OverBudget()), 0u);
  (void)tier->ShrinkStep(16);
  EXPECT_GE(tier->limbo_frames(), kFrames - 2 * kPerStep);
  for (int step = 0; step < 20 && tier->shrinking(); ++step) {
    (void)tier->ShrinkStep(16);
    while (auto segment = tier->TakeEmptySegment()) tier->SegmentDestroyed(segment->bytes());
  }
  EXPECT_FALSE(tier->shrinking());
  for (OwnerId owner = 0; owner < 5; ++owner) EXPECT_TRUE(Insert(owner, 2 * kMiB));
}

TEST_F(RamTierTest, LargerThanTheLargestFrameIsNoFrame) {
  Start({.budget_bytes = 8 * kMiB, .segment_bytes = 8 * kMiB, .max_frame_bytes = kMiB});
  EXPECT_EQ(tier->Allocate(1, KeyOf(1), kMiB + 1), kNoFrame);
  EXPECT_EQ(tier->Allocate(1, KeyOf(1), 0), kNoFrame);
}

TEST_F(RamTierTest, LimboWaitsForTheLeaseOfThisFill) {
  Start({.budget_bytes = 8 * kMiB, .segment_bytes = 8 * kMiB});
  SessionPage session = std::move(SessionPage::Create({})).value();
  tier->leases().Add(session.page());
  session.page()->lease_high.store(4);
  ASSERT_TRUE(Insert(1, 1000));
  const FrameId old = frames[1];
  session.page()->leases[0].store(LeaseWordOf(old));
  Evict(1);
  EXPECT_EQ(tier->ReclaimLimbo(100), 0u);
  EXPECT_EQ(tier->stats().leased_limbo_bytes, 1024u);
  // A newer frame of the same chunk, leased by everybody, does not keep the old one.
  ASSERT_TRUE(Insert(1, 1000));
  session.page()->leases[0].store(LeaseWordOf(frames[1]));
  EXPECT_EQ(tier->ReclaimLimbo(100), 1024u);
  EXPECT_FALSE(tier->allocator().IsFrame(old) && tier->State(old) == FrameState::kLimbo);
  // Fill 0 ("any", taken before a miss) keeps every frame of the chunk.
  session.page()->leases[1].store(abi::EncodeLease(abi::LeaseKeyOf(KeyOf(1)), 0));
  session.page()->leases[0].store(0);
  Evict(1);
  EXPECT_EQ(tier->ReclaimLimbo(100), 0u);
  session.page()->leases[1].store(0);
  EXPECT_EQ(tier->ReclaimLimbo(100), 1024u);
  EXPECT_EQ(tier->stats().allocator.limbo_frames, 0u);
  // The session's end takes its leases along.
  ASSERT_TRUE(Insert(2, 1000));
  session.page()->leases[3].store(LeaseWordOf(frames[2]));
  Evict(2);
  EXPECT_EQ(tier->ReclaimLimbo(100), 0u);
  tier->leases().Remove(session.page());
  EXPECT_EQ(tier->ReclaimLimbo(100), 1024u);
}

// HAZARDS 2.7: a read that was given up completes late, into memory that must still be its own.
TEST_F(RamTierTest, FramesUnderIoAreNotReused) {
  Start({.budget_bytes = 8 * kMiB, .segment_bytes = 8 * kMiB});
  const FrameId frame = tier->Allocate(1, KeyOf(1), 4096);
  tier->HoldIo(frame);
  tier->HoldIo(frame);
  tier->Retire(frame);
  EXPECT_EQ(tier->stats().held_limbo_frames, 1u);
  EXPECT_EQ(tier->stats().held_limbo_bytes, 4096u);
  EXPECT_EQ(tier->ReclaimLimbo(100), 0u);
  std::byte* const data = tier->Data(frame);
  for (OwnerId owner = 10; Insert(owner, 100'000); ++owner) {
    ASSERT_NE(tier->Data(frames[owner]), data);
  }
  tier->ReleaseIo(frame);
  EXPECT_EQ(tier->ReclaimLimbo(100), 0u);
  EXPECT_EQ(tier->stats().held_limbo_frames, 1u);
  tier->ReleaseIo(frame);
  EXPECT_EQ(tier->stats().held_limbo_frames, 0u);
  EXPECT_EQ(tier->ReclaimLimbo(100), 4096u);
}

TEST_F(RamTierTest, ReclaimLooksAtTheOldestFirstAndAtNoMoreThanAsked) {
  Start({.budget_bytes = 8 * kMiB, .segment_bytes = 8 * kMiB});
  for (OwnerId owner = 0; owner < 10; ++owner) ASSERT_TRUE(Insert(owner, 64));
  for (OwnerId owner = 0; owner < 10; ++owner) Evict(owner);
  EXPECT_EQ(tier->ReclaimLimbo(3), 192u);
  EXPECT_EQ(tier->stats().allocator.limbo_frames, 7u);
  const std::uint64_t scans = tier->stats().scans;
  EXPECT_EQ(tier->ReclaimLimbo(100), 448u);
  EXPECT_EQ(tier->stats().scans, scans + 1) << "one scan a batch";
  EXPECT_EQ(tier->ReclaimLimbo(100), 0u);
  EXPECT_EQ(tier->stats().scans, scans + 1) << "none for nothing";
}

TEST_F(RamTierTest, BudgetIsHardAndTheLastSegmentSmaller) {
  budget_ceiling = 20 * kMiB;
  Start({.budget_bytes = 20 * kMiB, .segment_bytes = 8 * kMiB});
  EXPECT_EQ(tier->stats().segments, 3u);
  EXPECT_EQ(tier->segment_bytes(), 20 * kMiB);
  EXPECT_EQ(tier->ReserveSegment().bytes, 0u);
  tier->set_budget(24 * kMiB);
  budget_ceiling = 24 * kMiB;
  const SegmentTicket ticket = tier->ReserveSegment();
  EXPECT_EQ(ticket.bytes, 4 * kMiB);
  EXPECT_EQ(tier->ReserveSegment().bytes, 0u) << "a reserved segment counts";
  tier->CancelSegment(ticket);
  EXPECT_TRUE(AddSegment());
}

TEST_F(RamTierTest, HoldsWhatALargestSegmentWouldTakeWhenEmpty) {
  Start({.budget_bytes = 40 * kMiB, .segment_bytes = 16 * kMiB, .max_frame_bytes = 32 * kMiB, .largest_bytes = 64 * kMiB});
  EXPECT_EQ(tier->LargestFrame(), 15 * kMiB);
  EXPECT_TRUE(tier->CouldHold(15 * kMiB));
  EXPECT_FALSE(tier->CouldHold(15 * kMiB + 1));
  for (OwnerId owner = 0; owner < 20; ++owner) ASSERT_TRUE(Insert(owner, kMiB));
  EXPECT_TRUE(tier->CouldHold(15 * kMiB)) << "others may leave";
  tier->set_budget(8 * kMiB);
  EXPECT_GE(tier->Shrink(tier->OverBudget()), 32 * kMiB);
  EXPECT_FALSE(tier->CouldHold(8 * kMiB)) << "what is to go takes nothing any more";
}

TEST_F(RamTierTest, BudgetsThatAreNoMultipleOfAHugePage) {
  budget_ceiling = 100'000;
  Start({.budget_bytes = 100'000, .segment_bytes = 8 * kMiB, .max_frame_bytes = 64 << 10});
  EXPECT_EQ(tier->segment_bytes(), 98'304u);
  EXPECT_TRUE(Insert(1, 784));
}

TEST_F(RamTierTest, ShrinksByWholeSegmentsAndGrowsAgain) {
  Start({.budget_bytes = 64 * kMiB, .segment_bytes = 16 * kMiB, .max_frame_bytes = kMiB});
  OwnerId next = 0;
  while (Insert(next, 300'000)) ++next;
  SessionPage session = std::move(SessionPage::Create({})).value();
  tier->leases().Add(session.page());
  session.page()->lease_high.store(1);
  session.page()->leases[0].store(LeaseWordOf(frames.begin()->second));

  tier->set_budget(30 * kMiB);
  EXPECT_EQ(tier->OverBudget(), 34 * kMiB);
  EXPECT_EQ(tier->Shrink(tier->OverBudget()), 48 * kMiB);
  std::uint64_t destroyed = 0;
  bool leased_gone = false;
  for (int turn = 0; turn < 2000 && tier->shrinking(); ++turn) {
    for (const OwnerId owner : tier->ShrinkStep(16)) Evict(owner);
    if (turn == 500) {
      session.page()->leases[0].store(0);  // until then the leased frame keeps its segment
      leased_gone = true;
    }
    while (auto segment = tier->TakeEmptySegment()) {
      const std::uint64_t bytes = segment->bytes();
      EXPECT_TRUE(segment->Punch(0, bytes).ok());
      EXPECT_EQ(tier->FindSegment(segment->serial()), nullptr);
      if (const std::uint64_t over = tier->OverBudget(); over > 0) tier->Shrink(over);  // another look at the budget, while this one is on its way out
      tier->SegmentDestroyed(bytes);
      destroyed += bytes;
    }
  }
  EXPECT_TRUE(leased_gone || destroyed == 48 * kMiB);
  EXPECT_FALSE(tier->shrinking());
  EXPECT_EQ(destroyed, 48 * kMiB);
  EXPECT_EQ(tier->segment_bytes(), 16 * kMiB);
  EXPECT_EQ(tier->stats().reserved_bytes, 0u);
  for (const auto& [owner, frame] : frames) Check(owner);
  EXPECT_GT(frames.size(), 30u) << "what had room elsewhere was moved, not evicted";

  tier->set_budget(64 * kMiB);
  while (AddSegment()) {
  }
  EXPECT_EQ(tier->segment_bytes(), 64 * kMiB);
}

// HAZARDS 2.8: a view that is kept for hours keeps its own pages, not 16 MiB around them, and the tier may use what it has to elsewhere.
TEST_F(RamTierTest, WhatLiesAroundLeasedFramesIsGivenBack) {
  Start({.budget_bytes = 48 * kMiB, .segment_bytes = 16 * kMiB, .max_frame_bytes = kMiB});
  OwnerId next = 0;
  while (Insert(next, 300'000)) ++next;
  SessionPage session = std::move(SessionPage::Create({})).value();
  tier->leases().Add(session.page());
  session.page()->lease_high.store(2);
  std::map<std::uint32_t, std::pair<OwnerId, FrameId>> viewed;  // one in each of two segments
  for (const auto& [owner, frame] : frames) {
    const std::uint32_t segment = abi::DecodeLocation(tier->LocationWord(frame)).segment;
    if (viewed.size() < 2 && !viewed.contains(segment)) {
      session.page()->leases[viewed.size()].store(LeaseWordOf(frame));
      viewed[segment] = {owner, frame};
    }
  }
  ASSERT_EQ(viewed.size(), 2u);
  const auto blocks = [&](std::uint32_t serial) {
    struct stat facts {};
    EXPECT_EQ(::fstat(tier->FindSegment(serial)->client_fd(), &facts), 0);
    return static_cast<std::uint64_t>(facts.st_blocks) * 512;
  };
  tier->set_budget(0);
  tier->Shrink(48 * kMiB);
  for (int turn = 0; turn < 200; ++turn) {
    for (const OwnerId owner : tier->ShrinkStep(16)) Evict(owner);
    while (auto segment = tier->TakeEmptySegment()) tier->SegmentDestroyed(segment->bytes());
  }
  ASSERT_EQ(tier->segment_bytes(), 32 * kMiB) << "two wait for leases";
  std::uint64_t given = 0;
  while (auto holes = tier->TakeHoles()) {
    for (const auto& range : holes->ranges) EXPECT_TRUE(PunchFile(holes->file.get(), range.offset, range.bytes).ok());
    EXPECT_LE(blocks(holes->serial), 16 * kMiB - holes->bytes);
    given += holes->bytes;
    EXPECT_EQ(tier->stats().reserved_bytes, holes->bytes) << "on its way";
    tier->SegmentDestroyed(holes->bytes);
  }
  EXPECT_GE(given, 32 * kMiB - 2 * (300'000 + 2 * 4096));
  EXPECT_EQ(tier->segment_bytes(), 32 * kMiB - given);
  EXPECT_EQ(tier->free_bytes(), 0u) << "nobody can use it";
  EXPECT_FALSE(tier->shrinking());
  EXPECT_TRUE(tier->ShrinkStep(16).empty());
  tier->CancelShrink();
  EXPECT_FALSE(Insert(next, 784)) << "it never opens again";
  for (const auto& [segment, who] : viewed) {
    const std::byte* const data = tier->Data(who.second);
    for (std::uint64_t i = 0; i < 300'000; i += 61) ASSERT_EQ(data[i], Content(who.first, i));
  }
  tier->set_budget(32 * kMiB);
  while (AddSegment()) {
  }
  EXPECT_TRUE(Insert(next, kMiB)) << "the tier grows beside them";
  for (auto& lease : session.page()->leases) lease.store(0);
  tier->ReclaimLimbo(1000);
  std::uint64_t destroyed = 0;
  while (auto segment = tier->TakeEmptySegment()) destroyed += segment->bytes(), tier->SegmentDestroyed(segment->bytes());
  EXPECT_EQ(destroyed, 32 * kMiB);
  EXPECT_FALSE(tier->has_hollow());
  EXPECT_EQ(tier->stats().hollow_bytes, 0u);
  EXPECT_EQ(tier->stats().reserved_bytes, 0u);
  EXPECT_EQ(tier->segment_bytes(), tier->stats().allocator.segment_bytes);
  Check(next);
}

TEST_F(RamTierTest, WhatCannotBePunchedCountsAsBefore) {
  Start({.budget_bytes = 16 * kMiB, .segment_bytes = 16 * kMiB, .max_frame_bytes = kMiB});
  ASSERT_TRUE(Insert(1, 300'000));
  SessionPage session = std::move(SessionPage::Create({})).value();
  tier->leases().Add(session.page());
  session.page()->lease_high.store(1);
  session.page()->leases[0].store(LeaseWordOf(frames.at(1)));
  tier->Shrink(16 * kMiB);
  for (int turn = 0; turn < 20; ++turn) {
    for (const OwnerId owner : tier->ShrinkStep(16)) Evict(owner);
  }
  const auto holes = tier->TakeHoles();
  ASSERT_TRUE(holes.has_value());
  EXPECT_LT(tier->segment_bytes(), kMiB);
  tier->HolesStay(*holes);
  EXPECT_EQ(tier->segment_bytes(), 16 * kMiB);
  EXPECT_EQ(tier->stats().reserved_bytes, 0u);
  EXPECT_FALSE(tier->TakeHoles().has_value()) << "once is enough";
  session.page()->leases[0].store(0);
  tier->ReclaimLimbo(10);
  EXPECT_TRUE(tier->TakeEmptySegment().has_value());
}

TEST_F(RamTierTest, ACancelledShrinkKeepsEverything) {
  Start({.budget_bytes = 32 * kMiB, .segment_bytes = 16 * kMiB, .max_frame_bytes = kMiB});
  for (OwnerId owner = 0; owner < 50; ++owner) ASSERT_TRUE(Insert(owner, 300'000));
  tier->Shrink(kMiB);
  EXPECT_TRUE(tier->shrinking());
  EXPECT_EQ(tier->ReserveSegment().bytes, 0u);
  tier->CancelShrink();
  EXPECT_FALSE(tier->shrinking());
  for (OwnerId owner = 0; owner < 50; ++owner) Check(owner);
  EXPECT_TRUE(Insert(100, kMiB));
}

TEST_F(RamTierTest, WalksOwnersInPieces) {
  Start({.budget_bytes = 16 * kMiB, .segment_bytes = 4 * kMiB, .max_frame_bytes = kMiB});
  OwnerId next = 0;
  while (Insert(next, 50'000)) ++next;
  std::map<OwnerId, int> seen;
  std::uint64_t position = 0;
  do {
    std::vector<OwnerId> owners;
    position = tier->WalkOwners(position, 7, owners);
    EXPECT_LE(owners.size(), 7u);
    for (const OwnerId owner : owners) ++seen[owner];
  } while (position != 0);
  EXPECT_EQ(seen.size(), frames.size());
  for (const auto& [owner, count] : seen) EXPECT_EQ(count, 1) << owner;
}

// Bytes survive compaction; leased frames stay where their readers see them, also when their owner's frame moves on later.
TEST_F(RamTierTest, CompactionMovesBytesAndRespectsLeases) {
  Start({.budget_bytes = 64 * kMiB, .segment_bytes = 64 * kMiB, .max_frame_bytes = kMiB / 2});
  SessionPage session = std::move(SessionPage::Create({})).value();
  tier->leases().Add(session.page());
  session.page()->lease_high.store(abi::kLeaseSlots);
  std::mt19937_64 random(11);
  test::SizeMix mix(5);
  struct View {
    OwnerId owner;
    FrameId frame;
    const std::byte* data;
    std::uint64_t bytes;
  };
  std::unordered_map<std::uint32_t, View> views;  // lease slot -> what its holder reads
  OwnerId next = 0;
  std::uint64_t failed = 0;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kSteps = 2000;
#else
  constexpr int kSteps = 10'000;
#endif
  for (int step = 0; step < kSteps; ++step) {
    if (step % 500 == 0) mix = test::SizeMix(static_cast<unsigned>(step / 500));
    while (tier->free_bytes() < tier->segment_bytes() / 8 && !frames.empty()) {
      auto victim = frames.lower_bound(static_cast<OwnerId>(random() % (next + 1)));
      if (victim == frames.end()) victim = frames.begin();
      Evict(victim->first);
      if (tier->ReclaimLimbo(1 << 20) == 0 && tier->stats().allocator.limbo_bytes > tier->segment_bytes() / 2) break;
    }
    if (Insert(next, std::min<std::uint64_t>(mix.Draw(random), kMiB / 2), random() % 4 == 0 ? 4096 : 64)) {
      ++next;
    } else {
      ++failed;
    }
    const auto slot = static_cast<std::uint32_t>(random() % 6);
    if (const auto view = views.find(slot); view != views.end()) {
      for (std::uint64_t i = 0; i < view->second.bytes; i += 61) ASSERT_EQ(view->second.data[i], Content(view->second.owner, i));
      session.page()->leases[slot].store(0);
      views.erase(view);
    } else if (!frames.empty()) {
      const auto chosen = std::prev(frames.end());
      session.page()->leases[slot].store(LeaseWordOf(chosen->second));
      views[slot] = {chosen->first, chosen->second, tier->Data(chosen->second), tier->Bytes(chosen->second)};
    }
    if (step % 2000 == 0) {
      for (const auto& [owner, frame] : frames) Check(owner);
      const auto defect = tier->allocator().Verify();
      ASSERT_FALSE(defect) << *defect;
    }
  }
  const RamTierStats stats = tier->stats();
  std::printf("%llu frames moved, %llu obstacles, %llu of %d inserts failed beside up to 6 leased frames\n",
              static_cast<unsigned long long>(stats.compaction.frames_moved), static_cast<unsigned long long>(stats.compaction.obstacles),
              static_cast<unsigned long long>(failed), kSteps);
  EXPECT_GT(stats.compaction.frames_moved, 100u);
  EXPECT_LT(failed, kSteps / 50);
}

TEST_F(RamTierTest, BackgroundCompactionIsAskedForOnlyWhenItCanHelp) {
  Start({.budget_bytes = 128 * kMiB, .segment_bytes = 128 * kMiB, .max_frame_bytes = 4 * kMiB});
  EXPECT_FALSE(tier->WantsCompaction());
  OwnerId next = 0;
  while (Insert(next, 100'000)) ++next;
  EXPECT_FALSE(tier->WantsCompaction()) << "nothing is free";
  for (OwnerId owner = 0; owner < next; owner += 4) Evict(owner);
  tier->ReclaimLimbo(1 << 20);
  EXPECT_TRUE(tier->WantsCompaction());
  int quanta = 0;
  while (tier->WantsCompaction() && quanta < 100) {
    ++quanta;
    (void)tier->CompactStep(4 * kMiB);
  }
  EXPECT_LT(quanta, 20);
  EXPECT_NE(tier->Allocate(next, KeyOf(next), 4 * kMiB), kNoFrame);
}

TEST_F(RamTierTest, AFullTierOfManySessionsIsNotLookedAtForEachMiss) {
  Start({.budget_bytes = 16 * kMiB, .segment_bytes = 16 * kMiB, .max_frame_bytes = 4 * kMiB});
  std::vector<SessionPage> pages;
  for (std::uint32_t i = 0; i < 40; ++i) {
    auto page = SessionPage::Create({.session_id = i + 1});
    ASSERT_TRUE(page.ok()) << page.status().message();
    pages.push_back(std::move(page).value());
    tier->leases().Add(pages.back().page());
  }
  OwnerId next = 0;
  while (Insert(next, 100'000)) ++next;
  while (tier->CompactStep(100'000) != Compactor::Outcome::kNothing) {
  }
  const std::uint64_t scans = tier->stats().scans;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Compactor::Outcome::kNothing, tier->CompactStep(100'000));
  EXPECT_EQ(Compactor::Outcome::kNothing, tier->CompactStep(200'000));
  EXPECT_LE(tier->stats().scans, scans + 2) << "nothing has come free";
  for (int i = 0; i < 5; ++i) (void)tier->CompactStep(100'000);
  EXPECT_GT(tier->stats().scans, scans) << "leases may have gone";
  Evict(0);
  Evict(next / 2);
  tier->ReclaimLimbo(1 << 20);
  const std::uint64_t freed = tier->stats().scans;
  EXPECT_NE(Compactor::Outcome::kNothing, tier->CompactStep(150'000));
  EXPECT_GT(tier->stats().scans, freed);
  for (SessionPage& page : pages) tier->leases().Remove(page.page());
}

}  // namespace
}  // namespace tierd::ram
