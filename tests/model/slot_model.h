// The hit path: readers with leases against a daemon that evicts, refills, reuses slots and frames, changes versions, compacts and lets
// the index grow. HAZARDS 1 (P1-P6, M1-M11, S2, S8), 2.1, 2.2, 2.4; layout.h.
//
// What is modelled: one slot (key, size/version, deadline, location with fill number, sequence) in an old and a new table, three
// frames of one word each, two sessions of two lease slots with lease_high, a clock, limbo. A file has two versions; v1 may be served
// while the clock shows 0, v2 always.
#pragma once

#include <cstdint>
#include <string>

#include "tests/model/machine.h"

namespace tierd::model {

// What is left out or done in the wrong order. The rows of HAZARDS 1, and some that layout.h makes possible.
enum class SlotMutation : std::uint8_t {
  kNone,
  kM1NoReaderFence,
  kM2NoDaemonFence,
  kM3NoSequenceCheck,
  kM4SequenceBeforeLease,
  kM5SequenceBeforeLocation,
  kM6LocationFromLookup,
  kM7LocationBeforeSequence,
  kM8NoRetiredCheck,
  kM9RetiredBeforeLease,
  kM9bReplacesOnlyInNew,      // no retired check; the daemon clears in both, but what replaces a location is written in the new only
  kM9bClearsEveryDeparture,   // as M9b, and the old table is cleared whenever a frame leaves: harmless, see README
  kM11PlainStores,
  kS2aLeaseCopied,
  kS8aVersionWithoutSequence,
  kFillNotRevalidated,        // the lease names the fill number of a look before it, another frame is used
  kHighRaisedLate,            // lease_high raised after the lease
  kRetiredStoredLate,         // the daemon changes the new table alone before the old one says `retired`
  kFreedByOlderScan,          // a frame retired after a lease scan is freed by it (compaction in the same step)
};

enum Act : std::uint8_t {
  kEvict, kScan, kFill, kReuse, kVersion, kCompact, kCopyTable, kPublish,
  kTick, kRetireOld,  // chosen by the configuration, not by `enabled`
  kActs,
};
constexpr std::uint16_t Bit(Act act) { return static_cast<std::uint16_t>(1u << act); }
inline constexpr std::uint16_t kBasicActs = Bit(kEvict) | Bit(kScan) | Bit(kFill) | Bit(kReuse) | Bit(kVersion);
inline constexpr std::uint16_t kGrowthActs = kBasicActs | Bit(kCopyTable) | Bit(kPublish);

// How a reader takes its lease (LAYOUT 2).
enum class LeaseOrder : std::uint8_t {
  kFillOfLookup,  // sequence, key, location; a lease with that location's fill number; the location again
  kAnyFill,       // sequence, key; a lease with fill 0 (the table of HAZARDS 1); the location
  kLeaseFirst,    // a lease with fill 0; sequence, key, location; the lease is narrowed to the location's fill number
};

struct SlotConfig {
  int readers = 1;
  int rounds = 1;              // per reader; each takes and releases a lease
  int attempts = 2;            // per round, when the slot moved underneath
  int acts = 4;                // of the daemon
  std::uint16_t enabled = kBasicActs;
  int frames = 2;
  bool clock_ticks = true;     // one more act: v1 expires
  LeaseOrder lease = LeaseOrder::kFillOfLookup;
  bool scan_high_first = false;
  bool move_lease = false;     // to the session's other slot, in the middle of the use
  bool deadline_first = false; // the order in which a rewrite stores deadline and version: free under the sequence
  bool retired_first = false;  // of the two last looks, `retired` comes before the sequence
  SlotMutation mutation = SlotMutation::kNone;
};

class SlotModel final : public Model {
 public:
  explicit SlotModel(const SlotConfig& config) : config_(config) {}

  int threads() const override { return config_.readers + 1; }
  State Initial() const override;
  int Choices(const State& state, int thread) const override;
  void Step(Cpu& cpu, int choice) const override;
  std::string CellName(int cell) const override;
  std::string ThreadName(int thread) const override;
  std::string ViolationText(std::uint8_t code) const override;

 private:
  bool Is(SlotMutation mutation) const { return config_.mutation == mutation; }
  bool LeaseFirst() const { return config_.lease == LeaseOrder::kLeaseFirst; }
  bool RetiredFirst() const { return config_.retired_first || LeaseFirst(); }  // as libtier's hits
  int daemon() const { return config_.readers; }
  // slot_reader.cc
  void ReaderStep(Cpu& cpu) const;
  void Begin(ThreadState& reader) const;
  void AfterSequence(Cpu& cpu) const;
  void TakeLease(Cpu& cpu) const;
  void Validate(Cpu& cpu) const;
  void Use(Cpu& cpu) const;
  void MoveLease(Cpu& cpu) const;
  void Fail(Cpu& cpu, bool leased) const;
  void EndRound(Cpu& cpu) const;
  // slot_daemon.cc
  void InitDaemon(State& state) const;
  int DaemonChoices(const State& state) const;
  void DaemonStep(Cpu& cpu, int choice) const;

  const SlotConfig config_;
};

}  // namespace tierd::model
