#include "tierd/source/stamp_clock.h"

#include <gtest/gtest.h>

namespace tierd::source {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNow = 1'700'000'000 * kSecond;

io::FileStat Stamped(std::int64_t mtime_ns, std::int64_t ctime_ns) {
  io::FileStat stat;
  stat.mtime_ns = mtime_ns;
  stat.ctime_ns = ctime_ns;
  return stat;
}

TEST(StampClock, YoungStampsAreRacyOldOnesAreNot) {
  const StampClock clock(10 * kSecond);
  EXPECT_TRUE(clock.IsYoung(Stamped(kNow - 3 * kSecond, kNow - 3 * kSecond), kNow));
  EXPECT_TRUE(clock.IsYoung(Stamped(kNow - 99 * kSecond, kNow - 3 * kSecond), kNow));
  EXPECT_TRUE(clock.IsYoung(Stamped(kNow - 3 * kSecond, kNow - 99 * kSecond), kNow));
  EXPECT_FALSE(clock.IsYoung(Stamped(kNow - 11 * kSecond, kNow - 11 * kSecond), kNow));
}

TEST(StampClock, FutureCtimeIsRacyFarFutureMtimeIsNot) {
  const StampClock clock(10 * kSecond);
  EXPECT_TRUE(clock.IsYoung(Stamped(0, kNow + 3600 * kSecond), kNow));
  EXPECT_TRUE(clock.IsYoung(Stamped(kNow + 5 * kSecond, 0), kNow));
  EXPECT_FALSE(clock.IsYoung(Stamped(kNow + 3600 * kSecond, 0), kNow));
}

TEST(StampClock, ASourceClockBehindOursWidensTheWindow) {
  StampClock clock(10 * kSecond);
  // Written just now, stamped a minute ago: the source's clock is behind by 58 to 60 s.
  clock.NoteChange(kNow - 2 * kSecond, kNow, kNow - 60 * kSecond);
  ASSERT_TRUE(clock.offset_ns().has_value());
  EXPECT_EQ(*clock.offset_ns(), -60 * kSecond);
  EXPECT_TRUE(clock.IsYoung(Stamped(kNow - 65 * kSecond, kNow - 65 * kSecond), kNow));
  EXPECT_FALSE(clock.IsYoung(Stamped(kNow - 75 * kSecond, kNow - 75 * kSecond), kNow));
}

TEST(StampClock, ObservationsNarrowTheDifferenceAndAClockThatWasSetStartsOver) {
  StampClock clock(10 * kSecond);
  clock.NoteChange(kNow - 8 * kSecond, kNow, kNow - 60 * kSecond);
  clock.NoteChange(kNow, kNow + 2 * kSecond, kNow - 56 * kSecond);
  EXPECT_EQ(*clock.offset_ns(), -58 * kSecond);
  clock.NoteChange(kNow + 3 * kSecond, kNow + 4 * kSecond, kNow + 4 * kSecond);
  EXPECT_EQ(*clock.offset_ns(), 0);
}

TEST(StampClock, LongSpansSayNothing) {
  StampClock clock(10 * kSecond);
  clock.NoteChange(kNow - 60 * kSecond, kNow, kNow - 59 * kSecond);
  EXPECT_FALSE(clock.offset_ns().has_value());
}

TEST(StampClock, WindowZeroTrustsEverything) {
  const StampClock clock(0);
  EXPECT_FALSE(clock.IsYoung(Stamped(kNow, kNow), kNow));
}

}  // namespace
}  // namespace tierd::source
