// The reader of SlotModel: one access to a cell per step, in the order of HAZARDS 2.1.
#include "tests/model/slot_cells.h"
#include "tests/model/slot_model.h"

namespace tierd::model {

using namespace slot;

namespace {

enum Pc : std::uint8_t {
  kReadSequence, kReadKey, kReadLocationFirst, kEarlySequence, kEarlyRetired, kRaiseHigh, kWriteLease, kMiddleSequence,
  kReadLocation, kReadVersion, kReadDeadline, kReadClock, kNarrowLease, kReadSequenceLast, kReadRetiredLast, kRaiseHighLate,
  kUseOnce, kCopyLease, kFenceCopy, kClearOldLease, kUseAgain, kGiveBack, kDrop, kFinished,
};
enum Reg {
  rRounds, rAttempts, rTable, rHigh,                                           // of the session
  rSequence, rFirstLocation, rLocation, rVersion, rDeadline, rNow,             // of the attempt
  rSlot, rHeldLocation, rMoving, rHeldVersion,                                 // of the view in use
};
constexpr int kRoundRegisters = rHeldVersion + 1;

}  // namespace

State SlotModel::Initial() const {
  State state;
  state.cell[Table(0, kSeq)] = 2;
  state.cell[Table(0, kKey)] = kKeyA;
  state.cell[Table(0, kVer)] = 1;
  state.cell[Table(0, kDeadline)] = DeadlineOf(kKeyA, 1);
  state.cell[Table(0, kLocation)] = LocationWord(0, 1);
  state.cell[static_cast<std::size_t>(Frame(0))] = ContentOf(kKeyA, 1);
  for (int reader = 0; reader < config_.readers; ++reader) {
    auto& reg = state.thread[static_cast<std::size_t>(reader)].reg;
    reg[rRounds] = static_cast<std::uint8_t>(config_.rounds);
    reg[rAttempts] = static_cast<std::uint8_t>(config_.attempts);
    Begin(state.thread[static_cast<std::size_t>(reader)]);
  }
  InitDaemon(state);
  return state;
}

// The first step of an attempt.
void SlotModel::Begin(ThreadState& reader) const {
  reader.pc = kReadSequence;
  if (!LeaseFirst()) return;
  const bool raised = reader.reg[rHigh] > reader.reg[rSlot];
  reader.pc = Is(SlotMutation::kFillNotRevalidated) ? kReadLocationFirst : raised || Is(SlotMutation::kHighRaisedLate) ? kWriteLease : kRaiseHigh;
}

int SlotModel::Choices(const State& state, int thread) const {
  if (thread == daemon()) return DaemonChoices(state);
  const ThreadState& self = state.thread[static_cast<std::size_t>(thread)];
  if (self.pc == kFinished) return 0;
  // Who found `retired` asks the daemon for the new index and waits.
  ThreadState first = self;
  Begin(first);
  if (self.pc == first.pc && self.reg[rTable] == 1 && state.cell[kPublished] == 0) return 0;
  return 1;
}

void SlotModel::Step(Cpu& cpu, int choice) const {
  if (cpu.thread() == daemon()) {
    DaemonStep(cpu, choice);
  } else {
    ReaderStep(cpu);
  }
}

void SlotModel::EndRound(Cpu& cpu) const {
  const std::uint8_t rounds = static_cast<std::uint8_t>(cpu.reg(rRounds) - 1);
  for (int i = rSequence; i < kRoundRegisters; ++i) cpu.reg(i) = 0;
  cpu.reg(rRounds) = rounds;
  cpu.reg(rAttempts) = rounds == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(config_.attempts);
  Begin(cpu.self());
  if (rounds == 0) cpu.self().pc = kFinished;
  if (rounds == 0) cpu.reg(rTable) = cpu.reg(rHigh) = 0;  // nobody looks at them again: fewer states
}

// The attempt is void: give the lease back, then try again or leave it (a miss: another model).
void SlotModel::Fail(Cpu& cpu, bool leased) const {
  if (leased) {
    cpu.self().pc = kDrop;
    return;
  }
  const std::uint8_t left = cpu.reg(rAttempts);
  if (cpu.reg(rMoving) != 0) {  // the lease that is held goes on
    cpu.reg(rSlot) = 0;
    cpu.reg(rLocation) = cpu.reg(rHeldLocation);
    cpu.reg(rVersion) = cpu.reg(rHeldVersion);
    cpu.self().pc = kUseAgain;
  } else if (left > 1) {
    cpu.reg(rAttempts) = static_cast<std::uint8_t>(left - 1);
    for (int i = rSequence; i <= rNow; ++i) cpu.reg(i) = 0;
    Begin(cpu.self());
  } else {
    EndRound(cpu);
  }
}

void SlotModel::ReaderStep(Cpu& cpu) const {
  switch (cpu.self().pc) {
    case kReadSequence:
    case kReadKey:
    case kReadLocationFirst:
    case kEarlySequence:
    case kEarlyRetired: return AfterSequence(cpu);
    case kRaiseHigh:
    case kWriteLease:
    case kMiddleSequence: return TakeLease(cpu);
    case kCopyLease:
    case kFenceCopy:
    case kClearOldLease: return MoveLease(cpu);
    case kUseOnce:
    case kUseAgain:
    case kGiveBack:
    case kDrop: return Use(cpu);
    default: return Validate(cpu);
  }
}

// Before the lease, or first under it: sequence and key. Where the lease names the fill number of the lookup also the location word, for that number only.
void SlotModel::AfterSequence(Cpu& cpu) const {
  const int table = cpu.reg(rTable);
  std::uint8_t& pc = cpu.self().pc;
  switch (pc) {
    case kReadSequence:
      cpu.reg(rSequence) = cpu.Load(Table(table, kSeq));
      if (cpu.reg(rSequence) % 2 != 0) return Fail(cpu, LeaseFirst());
      pc = kReadKey;
      return;
    case kReadKey:
      if (cpu.Load(Table(table, kKey)) != kKeyA) return Fail(cpu, LeaseFirst());
      if (LeaseFirst()) {
        pc = Is(SlotMutation::kM5SequenceBeforeLocation) ? kMiddleSequence : kReadLocation;
        return;
      }
      pc = config_.lease == LeaseOrder::kFillOfLookup || Is(SlotMutation::kM6LocationFromLookup) ? kReadLocationFirst : kEarlySequence;
      break;
    case kReadLocationFirst:
      cpu.reg(rFirstLocation) = cpu.Load(Table(table, kLocation));
      if (cpu.reg(rFirstLocation) == 0) return Fail(cpu, false);
      pc = LeaseFirst() ? kRaiseHigh : kEarlySequence;
      break;
    case kEarlySequence:
      if (cpu.Load(Table(table, kSeq)) != cpu.reg(rSequence)) return Fail(cpu, false);
      pc = kEarlyRetired;
      break;
    case kEarlyRetired:
      if (cpu.Load(Table(table, kRetired)) != 0) {
        cpu.reg(rTable) = 1;
        return Fail(cpu, false);
      }
      pc = kRaiseHigh;
      break;
    default: break;
  }
  if (pc == kEarlySequence && !Is(SlotMutation::kM4SequenceBeforeLease)) pc = kEarlyRetired;
  if (pc == kEarlyRetired && !Is(SlotMutation::kM9RetiredBeforeLease)) pc = kRaiseHigh;
  const bool raised = cpu.reg(rHigh) > cpu.reg(rSlot);
  if (pc == kRaiseHigh && (raised || Is(SlotMutation::kHighRaisedLate))) pc = kWriteLease;
}

void SlotModel::TakeLease(Cpu& cpu) const {
  const int table = cpu.reg(rTable);
  const int session = cpu.thread();
  std::uint8_t& pc = cpu.self().pc;
  switch (pc) {
    case kRaiseHigh:
      cpu.reg(rHigh) = static_cast<std::uint8_t>(cpu.reg(rSlot) + 1);
      cpu.Exchange(LeaseHigh(session), cpu.reg(rHigh));
      pc = kWriteLease;
      return;
    case kWriteLease: {
      const bool named = config_.lease == LeaseOrder::kFillOfLookup;
      const std::uint8_t word = LeaseWord(kKeyA, named ? FillOf(cpu.reg(rFirstLocation)) : 0);
      if (Is(SlotMutation::kM1NoReaderFence)) {
        cpu.Store(Lease(session, cpu.reg(rSlot)), word);
      } else {
        cpu.Exchange(Lease(session, cpu.reg(rSlot)), word);
      }
      if (LeaseFirst()) {
        pc = kReadSequence;
      } else if (Is(SlotMutation::kM6LocationFromLookup)) {
        cpu.reg(rLocation) = cpu.reg(rFirstLocation);
        pc = kReadVersion;
      } else {
        pc = Is(SlotMutation::kM5SequenceBeforeLocation) ? kMiddleSequence : kReadLocation;
      }
      return;
    }
    default:  // kMiddleSequence
      if (cpu.Load(Table(table, kSeq)) != cpu.reg(rSequence)) return Fail(cpu, true);
      pc = kReadLocation;
  }
}

// After the lease: everything that is used, then sequence and `retired`, last.
void SlotModel::Validate(Cpu& cpu) const {
  const int table = cpu.reg(rTable);
  std::uint8_t& pc = cpu.self().pc;
  const bool no_last_sequence = Is(SlotMutation::kM3NoSequenceCheck) || Is(SlotMutation::kM4SequenceBeforeLease) ||
                                Is(SlotMutation::kM5SequenceBeforeLocation);
  const bool no_last_retired = Is(SlotMutation::kM8NoRetiredCheck) || Is(SlotMutation::kM9RetiredBeforeLease) ||
                               Is(SlotMutation::kM9bReplacesOnlyInNew) || Is(SlotMutation::kM9bClearsEveryDeparture);
  switch (pc) {
    case kReadLocation: {
      const std::uint8_t location = cpu.Load(Table(table, kLocation));
      if (location == 0) return Fail(cpu, true);
      const bool same_fill = config_.lease != LeaseOrder::kFillOfLookup || FillOf(location) == FillOf(cpu.reg(rFirstLocation));
      if (!same_fill && !Is(SlotMutation::kFillNotRevalidated)) return Fail(cpu, true);
      cpu.reg(rLocation) = location;
      pc = kReadVersion;
      return;
    }
    case kReadVersion:
      cpu.reg(rVersion) = cpu.Load(Table(table, kVer));
      pc = kReadDeadline;
      return;
    case kReadDeadline:
      cpu.reg(rDeadline) = cpu.Load(Table(table, kDeadline));
      pc = kReadClock;
      return;
    case kReadClock:
      cpu.reg(rNow) = cpu.Load(kClock);
      if (cpu.reg(rNow) >= cpu.reg(rDeadline)) return Fail(cpu, true);
      pc = LeaseFirst() ? kNarrowLease : RetiredFirst() ? kReadRetiredLast : kReadSequenceLast;
      break;
    case kNarrowLease: {
      const std::uint8_t seen = Is(SlotMutation::kFillNotRevalidated) ? cpu.reg(rFirstLocation) : cpu.reg(rLocation);
      cpu.Store(Lease(cpu.thread(), cpu.reg(rSlot)), LeaseWord(kKeyA, FillOf(seen)), kRelease);
      pc = RetiredFirst() ? kReadRetiredLast : kReadSequenceLast;
      break;
    }
    case kReadSequenceLast:
      if (cpu.Load(Table(table, kSeq)) != cpu.reg(rSequence)) return Fail(cpu, true);
      pc = RetiredFirst() ? kUseOnce : kReadRetiredLast;
      break;
    case kReadRetiredLast:
      if (cpu.Load(Table(table, kRetired)) != 0) {
        cpu.reg(rTable) = 1;
        return Fail(cpu, true);
      }
      pc = RetiredFirst() ? kReadSequenceLast : kUseOnce;
      break;
    default:  // kRaiseHighLate
      cpu.reg(rHigh) = static_cast<std::uint8_t>(cpu.reg(rSlot) + 1);
      cpu.Exchange(LeaseHigh(cpu.thread()), cpu.reg(rHigh));
      pc = kUseOnce;
      return;
  }
  if (!RetiredFirst() && pc == kReadSequenceLast && no_last_sequence) pc = kReadRetiredLast;
  if (pc == kReadRetiredLast && no_last_retired) pc = RetiredFirst() ? kReadSequenceLast : kUseOnce;
  if (RetiredFirst() && pc == kReadSequenceLast && no_last_sequence) pc = kUseOnce;
  if (pc == kUseOnce && cpu.reg(rMoving) != 0) {  // the second lease is valid too: does it hold the same frame?
    if (cpu.reg(rLocation) != cpu.reg(rHeldLocation)) return Fail(cpu, true);
    pc = kClearOldLease;
  } else if (pc == kUseOnce && Is(SlotMutation::kHighRaisedLate) && cpu.reg(rHigh) <= cpu.reg(rSlot)) {
    pc = kRaiseHighLate;
  }
}

void SlotModel::Use(Cpu& cpu) const {
  std::uint8_t& pc = cpu.self().pc;
  switch (pc) {
    case kUseOnce: {
      const std::uint8_t bytes = cpu.Load(Frame(FrameOf(cpu.reg(rLocation))));
      cpu.Say(std::string("reads ") + kContentNames[bytes] + " as A v" + std::to_string(cpu.reg(rVersion)));
      if (bytes != ContentOf(kKeyA, cpu.reg(rVersion))) return cpu.Violate(kWrongBytes);
      if (cpu.reg(rNow) >= ValidUntil(bytes)) return cpu.Violate(kExpired);
      pc = kUseAgain;
      if (!config_.move_lease) return;
      cpu.reg(rHeldLocation) = cpu.reg(rLocation);
      cpu.reg(rHeldVersion) = cpu.reg(rVersion);
      cpu.reg(rMoving) = 1;
      cpu.reg(rAttempts) = 1;
      cpu.reg(rSlot) = 1;
      Begin(cpu.self());
      if (Is(SlotMutation::kS2aLeaseCopied)) pc = kCopyLease;
      return;
    }
    case kUseAgain: {
      const std::uint8_t bytes = cpu.Load(Frame(FrameOf(cpu.reg(rLocation))));
      cpu.Say(std::string("still reads ") + kContentNames[bytes]);
      if (bytes != ContentOf(kKeyA, cpu.reg(rVersion))) return cpu.Violate(kChangedUnderLease);
      pc = kGiveBack;
      return;
    }
    case kGiveBack:
      cpu.Store(Lease(cpu.thread(), cpu.reg(rSlot)), 0, kRelease);
      return EndRound(cpu);
    default:  // kDrop
      cpu.Store(Lease(cpu.thread(), cpu.reg(rSlot)), 0, kRelease);
      return Fail(cpu, false);
  }
}

// S2a copies the word and clears the old one; the sound way comes here only after the whole protocol for the second slot.
void SlotModel::MoveLease(Cpu& cpu) const {
  std::uint8_t& pc = cpu.self().pc;
  const int session = cpu.thread();
  switch (pc) {
    case kCopyLease:
      if (cpu.reg(rHigh) < 2) {
        cpu.reg(rHigh) = 2;
        cpu.Exchange(LeaseHigh(session), 2);
        return;
      }
      cpu.Store(Lease(session, 1), LeaseWord(kKeyA, config_.lease == LeaseOrder::kAnyFill ? 0 : FillOf(cpu.reg(rHeldLocation))));
      pc = kFenceCopy;
      return;
    case kFenceCopy:
      cpu.Fence();
      pc = kClearOldLease;
      return;
    default:  // kClearOldLease
      cpu.Store(Lease(session, 0), 0, kRelease);
      pc = kUseAgain;
  }
}

}  // namespace tierd::model
