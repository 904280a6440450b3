// The hit path: HAZARDS 1 rows P1-P6 hold, every M and S mutation of it is found.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/report.h"
#include "tests/model/slot_model.h"

namespace tierd::model {
namespace {

constexpr Order kOrders[] = {Order::kSc, Order::kTso, Order::kPso};
constexpr LeaseOrder kLeases[] = {LeaseOrder::kFillOfLookup, LeaseOrder::kAnyFill, LeaseOrder::kLeaseFirst};
// Those of libtier: of a chunk of a large file, of everything else.
constexpr LeaseOrder kLeasesInUse[] = {LeaseOrder::kFillOfLookup, LeaseOrder::kLeaseFirst};

std::string Named(const char* what, LeaseOrder lease) {
  static constexpr const char* kNames[] = {"fill number", "fill 0", "lease first"};
  return std::string(what) + " (" + kNames[static_cast<int>(lease)] + ")";
}

// P1-P3: one reader whose lease slot is used again in a second round.
TEST(HitPath, OneReaderTwoRoundsIsSound) {
  for (const Order order : kOrders) {
    for (const LeaseOrder lease : kLeases) {
      SlotConfig config;
      config.rounds = 2;
      config.acts = 5;
      config.lease = lease;
      ExpectSound(Named("P1-P3", lease), SlotModel(config), order);
    }
  }
}

// P4.
TEST(HitPath, TwoReadersAreSound) {
  for (const LeaseOrder lease : kLeases) {
    SlotConfig config;
    config.readers = 2;
    config.acts = 3;
    config.attempts = 1;
    config.lease = lease;
    ExpectSound(Named("P4", lease), SlotModel(config), Order::kTso);
  }
}

// The bar: two readers and the daemon, every schedule with at most three preemptions.
TEST(HitPath, TwoReadersThreePreemptionsExhaustive) {
  for (const Order order : kOrders) {
    for (const LeaseOrder lease : kLeasesInUse) {
      SlotConfig config;
      config.readers = 2;
      config.acts = order == Order::kSc ? 5 : (order == Order::kTso ? 4 : 3);
      config.lease = lease;
      const Outcome outcome = ExpectSound(Named("two readers, 3 preemptions", lease), SlotModel(config), order, {.preemptions = 3, .states = 40'000'000});
      EXPECT_GE(outcome.schedules, 10'000u);
    }
  }
}

// Under PSO with one: there are thirty times as many states.
TEST(HitPath, TwoReadersThreePreemptionsWhileTheIndexGrows) {
  for (const Order order : kOrders) {
    for (const LeaseOrder lease : kLeasesInUse) {
      SlotConfig config;
      config.readers = 2;
      config.acts = order == Order::kSc ? 5 : 3;
      config.enabled = Bit(kCopyTable) | Bit(kPublish) | Bit(kEvict) | Bit(kScan) | Bit(kReuse);
      config.lease = lease;
      const Outcome outcome = ExpectSound(Named("two readers, 3 preemptions, growth", lease), SlotModel(config), order, {.preemptions = order == Order::kPso ? 1 : 3});
      EXPECT_GE(outcome.schedules, 10'000u);
    }
  }
}

TEST(HitPath, CompactionIsSound) {
  for (const Order order : kOrders) {
    for (const LeaseOrder lease : kLeasesInUse) {
      SlotConfig config;
      config.acts = 4;
      config.frames = 3;
      config.enabled = kBasicActs | Bit(kCompact);
      config.lease = lease;
      ExpectSound(Named("compaction", lease), SlotModel(config), order);
    }
  }
}

// P5, P6.
TEST(HitPath, GrowthIsSound) {
  for (const Order order : kOrders) {
    for (const LeaseOrder lease : kLeasesInUse) {
      SlotConfig config;
      config.acts = 5;
      config.enabled = kGrowthActs;
      config.lease = lease;
      ExpectSound(Named("growth", lease), SlotModel(config), order);
      config.rounds = 2;
      config.acts = 4;
      ExpectSound(Named("growth, two rounds", lease), SlotModel(config), order);
    }
  }
}

// The two last looks may come in either order.
TEST(HitPath, GrowthWithRetiredBeforeTheSequenceIsSound) {
  for (const LeaseOrder lease : kLeasesInUse) {
    SlotConfig config;
    config.acts = 5;
    config.enabled = kGrowthActs;
    config.retired_first = true;
    config.lease = lease;
    ExpectSound(Named("growth, retired first", lease), SlotModel(config), Order::kTso);
  }
}

TEST(HitPath, GrowthWithCompactionIsSound) {
  for (const LeaseOrder lease : kLeasesInUse) {
    SlotConfig config;
    config.acts = 5;
    config.enabled = Bit(kCopyTable) | Bit(kPublish) | Bit(kCompact) | Bit(kScan) | Bit(kReuse) | Bit(kEvict);
    config.clock_ticks = false;
    config.lease = lease;
    ExpectSound(Named("growth with compaction", lease), SlotModel(config), Order::kTso);
  }
}

// S2b: the lease of a view goes to another slot by the whole protocol, whichever way the scan runs.
TEST(HitPath, ALeaseMovedByFullReacquireIsSound) {
  for (const bool high_first : {false, true}) {
    for (const Order order : {Order::kSc, Order::kTso}) {
      for (const LeaseOrder lease : kLeasesInUse) {
        SlotConfig config;
        config.acts = 4;
        config.move_lease = true;
        config.scan_high_first = high_first;
        config.lease = lease;
        ExpectSound(Named(high_first ? "S2b high to low" : "S2b low to high", lease), SlotModel(config), order);
      }
    }
  }
}

struct Seeded {
  const char* name;
  SlotMutation mutation;
  std::uint16_t enabled;
  int max_acts;
  Order order = Order::kTso;
  bool move_lease = false;
  std::vector<LeaseOrder> leases = {LeaseOrder::kFillOfLookup, LeaseOrder::kAnyFill, LeaseOrder::kLeaseFirst};
};

class Mutation : public ::testing::TestWithParam<Seeded> {};

TEST_P(Mutation, IsFound) {
  const Seeded& seeded = GetParam();
  for (const LeaseOrder lease : seeded.leases) {
    const auto make = [&](int acts) {
      SlotConfig config;
      config.acts = acts;
      config.enabled = seeded.enabled;
      config.lease = lease;
      config.move_lease = seeded.move_lease;
      config.scan_high_first = seeded.move_lease;
      config.mutation = seeded.mutation;
      return std::make_unique<SlotModel>(config);
    };
    ExpectFound(Named(seeded.name, lease), make, seeded.order, seeded.max_acts);
  }
}

// What needs something that was read before the lease.
const std::vector<LeaseOrder> kLeaseLater = {LeaseOrder::kFillOfLookup, LeaseOrder::kAnyFill};
constexpr std::uint16_t kGrowOnly = Bit(kCopyTable) | Bit(kPublish);
INSTANTIATE_TEST_SUITE_P(
    HitPath, Mutation,
    ::testing::Values(
        Seeded{"M1_no_reader_fence", SlotMutation::kM1NoReaderFence, kBasicActs, 5},
        Seeded{"M2_no_daemon_fence", SlotMutation::kM2NoDaemonFence, kBasicActs, 5},
        Seeded{"M3_no_sequence_check", SlotMutation::kM3NoSequenceCheck, kBasicActs, 5},
        Seeded{"M4_sequence_before_lease", SlotMutation::kM4SequenceBeforeLease, kBasicActs, 5, Order::kTso, false, kLeaseLater},
        Seeded{"M5_sequence_before_location", SlotMutation::kM5SequenceBeforeLocation, kBasicActs, 5},
        Seeded{"M6_location_from_lookup", SlotMutation::kM6LocationFromLookup, kBasicActs, 5, Order::kTso, false, kLeaseLater},
        Seeded{"M7_location_before_sequence", SlotMutation::kM7LocationBeforeSequence, kBasicActs, 5},
        Seeded{"M8_no_retired_check", SlotMutation::kM8NoRetiredCheck, kGrowOnly | Bit(kEvict) | Bit(kScan) | Bit(kReuse), 5},
        Seeded{"M9_retired_before_lease", SlotMutation::kM9RetiredBeforeLease, kGrowOnly | Bit(kEvict) | Bit(kScan) | Bit(kReuse), 5, Order::kTso, false, kLeaseLater},
        Seeded{"M9b_replaces_only_in_new", SlotMutation::kM9bReplacesOnlyInNew,
               kGrowOnly | Bit(kVersion) | Bit(kScan) | Bit(kCompact), 5},
        Seeded{"M11_plain_stores", SlotMutation::kM11PlainStores, kBasicActs, 5, Order::kPso},
        Seeded{"S2a_lease_copied", SlotMutation::kS2aLeaseCopied, kBasicActs, 5, Order::kSc, true},
        Seeded{"S8a_version_without_sequence", SlotMutation::kS8aVersionWithoutSequence, kBasicActs, 4},
        Seeded{"fill_not_revalidated", SlotMutation::kFillNotRevalidated, kBasicActs | Bit(kCompact), 5, Order::kSc, false, {LeaseOrder::kFillOfLookup, LeaseOrder::kLeaseFirst}},
        Seeded{"lease_high_raised_late", SlotMutation::kHighRaisedLate, kBasicActs, 5, Order::kSc},
        Seeded{"retired_stored_late", SlotMutation::kRetiredStoredLate, kGrowOnly | Bit(kEvict) | Bit(kScan) | Bit(kReuse), 5, Order::kSc},
        Seeded{"freed_by_older_scan", SlotMutation::kFreedByOlderScan, kBasicActs | Bit(kCompact), 4, Order::kSc}),
    [](const auto& param) { return std::string(param.param.name); });

// What S8a is about: v1's bytes under v2's deadline. The row must be found for that too, not only for the size.
TEST(HitPath, S8aExpiredBytesUnderTheNewDeadlineAreFound) {
  const auto make = [](int acts) {
    SlotConfig config;
    config.acts = acts;
    config.enabled = Bit(kVersion);
    config.mutation = SlotMutation::kS8aVersionWithoutSequence;
    config.deadline_first = true;
    return std::make_unique<SlotModel>(config);
  };
  const Outcome outcome = ExpectFound("S8a, deadline first", make, Order::kSc, 2);
  EXPECT_NE(outcome.text.find("after its time"), std::string::npos);
}

// The other reading of row M9b ("the daemon clears both") is harmless: as long as the old table never names a frame that has left, a reader
// of it can only miss. It is here so that nobody takes the row for more than it says.
TEST(HitPath, M9bWithEveryDepartureClearedInTheOldTableIsSound) {
  SlotConfig config;
  config.acts = 5;
  config.enabled = kGrowthActs & static_cast<std::uint16_t>(~Bit(kFill));
  config.mutation = SlotMutation::kM9bClearsEveryDeparture;
  ExpectSound("M9b, every departure cleared", SlotModel(config), Order::kTso);
}

// On x86 (TSO) plain stores at publish do what release stores do; only the compiler or another machine reorders them. Hence PSO above.
TEST(HitPath, M11IsNotSeenUnderTso) {
  SlotConfig config;
  config.acts = 4;
  config.mutation = SlotMutation::kM11PlainStores;
  ExpectSound("M11", SlotModel(config), Order::kTso);
}

}  // namespace
}  // namespace tierd::model
