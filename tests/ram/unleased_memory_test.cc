#include "tierd/ram/unleased_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tierd/ram/session_page.h"

namespace tierd::ram {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kBytes = 100'000;

abi::FileKey KeyOf(std::uint64_t n) { return {abi::Mix64(n + 1), abi::Mix64(n + 77)}; }

class UnleasedMemoryTest : public testing::Test {
 protected:
  void Start(SegmentSeal seal) {
    SegmentOptions options;
    options.force_kind = abi::PageKind::k4KiB;
    options.seal = seal;
    SegmentFactory factory(options);
    for (SegmentTicket ticket = tier.ReserveSegment(); ticket.bytes != 0; ticket = tier.ReserveSegment()) {
      tier.AddSegment(ticket, std::move(factory.Create(ticket.bytes)).value());
    }
    for (OwnerId owner = 0; owner < 60; ++owner) {
      const FrameId frame = tier.Allocate(owner, KeyOf(owner), kBytes);
      ASSERT_NE(frame, kNoFrame);
      std::memset(tier.Data(frame), static_cast<int>(owner) + 1, kBytes);
      tier.MarkLive(frame);
      frames.push_back(frame);
    }
    session.page()->lease_high.store(8);
    tier.leases().Add(session.page());
  }
  void Lease(std::uint32_t slot, OwnerId owner, std::uint16_t fill) { session.page()->leases[slot].store(abi::EncodeLease(abi::LeaseKeyOf(KeyOf(owner)), fill)); }
  std::uint16_t FillOf(OwnerId owner) const { return abi::DecodeLocation(tier.LocationWord(frames[owner])).fill; }
  bool All(OwnerId owner, int value) const {
    const std::byte* data = tier.Data(frames[owner]);
    return std::all_of(data, data + kBytes, [&](std::byte b) { return b == static_cast<std::byte>(value); });
  }
  // Memory of all segments, as the kernel counts it.
  std::uint64_t Allocated() const {
    std::uint64_t bytes = 0;
    for (std::uint32_t serial = 1; serial < 100; ++serial) {
      const Segment* const segment = tier.FindSegment(serial);
      struct stat st {};
      if (segment != nullptr && ::fstat(segment->client_fd(), &st) == 0) bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
    }
    return bytes;
  }

  RamTier tier{{.budget_bytes = 8 * kMiB, .segment_bytes = 4 * kMiB, .max_frame_bytes = 256 << 10}, [](OwnerId, FrameId, FrameId) {}};
  SessionPage session = std::move(SessionPage::Create({})).value();
  std::vector<FrameId> frames;
};

TEST_F(UnleasedMemoryTest, GoesBackAndLeasedFramesStay) {
  Start(SegmentSeal::kShrink);
  EXPECT_EQ(Allocated(), 8 * kMiB);
  Lease(1, 3, FillOf(3));
  Lease(2, 41, 0);                                                        // any fill: the reader waits for an answer
  Lease(3, 7, static_cast<std::uint16_t>(FillOf(7) + 1));                 // of another frame of that file
  tier.HoldIo(frames[20]);
  const std::uint64_t given = GiveBackUnleased(tier, [] { return true; });
  EXPECT_EQ(Allocated(), 8 * kMiB - given);
  EXPECT_LE(Allocated(), 3 * (kBytes + 2 * 4096));
  for (const OwnerId kept : {3u, 41u, 20u}) EXPECT_TRUE(All(kept, static_cast<int>(kept) + 1)) << kept;
  // Between its neighbours' pages there is nothing left of it.
  EXPECT_EQ(tier.Data(frames[7])[kBytes / 2], std::byte{0});
  tier.ReleaseIo(frames[20]);
}

TEST_F(UnleasedMemoryTest, EndsWhenItIsTold) {
  Start(SegmentSeal::kShrink);
  EXPECT_EQ(GiveBackUnleased(tier, [] { return false; }), 0u);
  EXPECT_EQ(Allocated(), 8 * kMiB);
}

TEST_F(UnleasedMemoryTest, NothingComesBackUnderASealAgainstWriting) {
  Start(SegmentSeal::kWrite);
  EXPECT_EQ(GiveBackUnleased(tier, [] { return true; }), 0u);
  EXPECT_TRUE(All(5, 6));
}

}  // namespace
}  // namespace tierd::ram
