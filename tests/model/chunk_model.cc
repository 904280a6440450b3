#include "tests/model/chunk_model.h"

#include "tests/model/act_list.h"

namespace tierd::model {

namespace {

enum Cell {
  kFileSeq, kFileSize, kFileTag, kFileDeadline,      // the size stands for the version: v1 and v2 differ in it
  kChunkSeq, kChunkKey, kChunkTag, kChunkLocation,
  kFrame0, kLease = kFrame0 + 2, kClock,
};
enum Violation : std::uint8_t { kWrongBytes = 1, kExpired = 2 };
enum Pc : std::uint8_t {
  kReadFileSeq, kReadSize, kReadTag, kReadDeadline, kReadClock, kCheckOpen,
  kReadChunkSeq, kReadChunkKey, kReadFirst, kEarlyTag, kTakeLease, kReadLocation, kReadChunkTag,
  kChunkSeqLast, kFileSeqLast, kUseOnce, kUseAgain, kGiveBack, kDrop, kFinished,
};
enum Reg { rFileSeq, rSize, rTag, rDeadline, rNow, rChunkSeq, rFirst, rLocation, rAttempts, rReads };

enum DaemonReg { dActsLeft = kFirstFreeRegister, dTickLeft, dNextFill, dFrame, dFileVersion, dChunkKey, dChunkTag, dLocation, dFileSeq, dChunkSeq, dFrames };
enum Act { kEvict, kScan, kFill, kFileChanges, kChunkOfNewVersion, kReuse, kTick, kActs };

class ChunkActs final : public ActList {
 public:
  explicit ChunkActs(Registers& d) : ActList(d), frames_(d, dFrames, 2) {}
  int count() const override { return kActs; }
  const char* Name(int act) const override {
    static const char* const kNames[kActs] = {"evict", "scan leases", "fill", "file changes", "chunk of the new version", "reuse chunk slot", "time passes"};
    return kNames[act];
  }
  FrameNotes& frames() override { return frames_; }

  bool Possible(int act) override {
    const bool room = frames_.Free() >= 0;
    if (act == kTick) return d_[dTickLeft] != 0;
    if (d_[dActsLeft] == 0) return false;
    switch (act) {
      case kEvict: return d_[dLocation] != 0;
      case kScan: return frames_.AnyLimbo();
      case kFill: return d_[dLocation] == 0 && room;
      case kFileChanges: return d_[dFileVersion] == 1;
      case kChunkOfNewVersion: return d_[dChunkKey] == kKeyA && d_[dChunkTag] != d_[dFileVersion] && room;
      default: return d_[dLocation] == 0 && d_[dChunkKey] == kKeyA && room;
    }
  }
  void Start(int act) override {
    if (act != kTick) --d_[dActsLeft];
    d_[dFrame] = static_cast<std::uint8_t>(frames_.Free() < 0 ? 0 : frames_.Free());
    if (act == kScan) frames_.BeginScan();
  }
  OpList Ops(int act) override {
    OpList list;
    switch (act) {
      case kEvict: list.Add(Op::kStore, kChunkLocation, 0); break;
      case kScan:
        list.Add(Op::kFence);
        list.Add(Op::kLoadLease, kLease);
        break;
      case kFill:
        list.Add(Op::kStore, kFrame0 + d_[dFrame], ContentOf(d_[dChunkKey], d_[dChunkTag]));
        list.Add(Op::kStore, kChunkLocation, NewLocation(), kRelease);
        break;
      case kFileChanges:
        list.Add(Op::kStore, kFileSeq, d_[dFileSeq] + 1);
        list.Add(Op::kStore, kFileSize, 2, kAfterFence);
        list.Add(Op::kStore, kFileTag, 2);
        list.Add(Op::kStore, kFileDeadline, DeadlineOf(kKeyA, 2));
        list.Add(Op::kStore, kFileSeq, d_[dFileSeq] + 2, kRelease);
        break;
      case kTick: list.Add(Op::kSet, kClock, 1); break;
      default: {
        const int key = act == kReuse ? kKeyB : kKeyA;
        const int tag = act == kReuse ? 1 : d_[dFileVersion];  // tags are counted per file: B's first is 1 too
        list.Add(Op::kStore, kFrame0 + d_[dFrame], ContentOf(key, tag));
        list.Add(Op::kStore, kChunkSeq, d_[dChunkSeq] + 1);
        list.Add(Op::kStore, kChunkKey, key, kAfterFence);
        list.Add(Op::kStore, kChunkTag, tag);
        list.Add(Op::kStore, kChunkLocation, NewLocation(), kRelease);
        list.Add(Op::kStore, kChunkSeq, d_[dChunkSeq] + 2, kRelease);
      }
    }
    return list;
  }
  void Commit(int act) override {
    switch (act) {
      case kEvict:
        frames_.Retire(FrameOf(d_[dLocation]));
        d_[dLocation] = 0;
        break;
      case kScan: frames_.EndScan(); break;
      case kFill: Take(); break;
      case kFileChanges:
        d_[dFileVersion] = 2;
        d_[dFileSeq] = static_cast<std::uint8_t>(d_[dFileSeq] + 2);
        break;
      case kTick: d_[dTickLeft] = 0; break;
      default:
        if (d_[dLocation] != 0) frames_.Retire(FrameOf(d_[dLocation]));
        d_[dChunkKey] = act == kReuse ? kKeyB : kKeyA;
        d_[dChunkTag] = act == kReuse ? std::uint8_t{1} : d_[dFileVersion];
        d_[dChunkSeq] = static_cast<std::uint8_t>(d_[dChunkSeq] + 2);
        Take();
        break;
    }
    d_[dFrame] = 0;
  }

 private:
  std::uint8_t NewLocation() const { return LocationWord(d_[dFrame], d_[dNextFill]); }
  void Take() {
    frames_.Take(d_[dFrame], ContentOf(d_[dChunkKey], d_[dChunkTag]), LeaseWord(d_[dChunkKey], d_[dNextFill]));
    d_[dLocation] = NewLocation();
    ++d_[dNextFill];
  }
  FrameNotes frames_;
};

}  // namespace

State ChunkModel::Initial() const {
  State state;
  state.cell[kFileSeq] = state.cell[kChunkSeq] = 2;
  state.cell[kFileSize] = state.cell[kFileTag] = state.cell[kChunkTag] = 1;
  state.cell[kFileDeadline] = DeadlineOf(kKeyA, 1);
  state.cell[kChunkKey] = kKeyA;
  state.cell[kChunkLocation] = LocationWord(0, 1);
  state.cell[kFrame0] = ContentOf(kKeyA, 1);
  state.thread[0].reg[rAttempts] = 2;
  state.thread[0].reg[rReads] = config_.handle ? 2 : 1;
  Registers& d = state.thread[1].reg;
  d[dActsLeft] = static_cast<std::uint8_t>(config_.acts);
  d[dTickLeft] = 1;
  d[dNextFill] = d[dFileSeq] = d[dChunkSeq] = 2;
  d[dFileVersion] = d[dChunkTag] = 1;
  d[dChunkKey] = kKeyA;
  d[dLocation] = LocationWord(0, 1);
  FrameNotes(d, dFrames, 2).Take(0, ContentOf(kKeyA, 1), LeaseWord(kKeyA, 1));
  return state;
}

std::string ChunkModel::CellName(int cell) const {
  static const char* const kNames[] = {"file.seq", "file.size", "file.tag", "file.deadline", "chunk.seq", "chunk.key",
                                       "chunk.tag", "chunk.location", "frame0", "frame1", "lease", "clock"};
  return kNames[cell];
}

std::string ChunkModel::ViolationText(std::uint8_t code) const {
  return code == kExpired ? "a reader accepted a version after its time" : "a reader used bytes that are not those of its file and version";
}

int ChunkModel::Choices(const State& state, int thread) const {
  if (thread == 0) return state.thread[0].pc == kFinished ? 0 : 1;
  Registers d = state.thread[1].reg;
  return ChunkActs(d).Choices();
}

void ChunkModel::Step(Cpu& cpu, int choice) const {
  if (cpu.thread() == 1) return ChunkActs(cpu.self().reg).Step(cpu, choice);
  const std::uint8_t pc = cpu.self().pc;
  if (pc <= kCheckOpen) return FileStep(cpu);
  return pc <= kReadChunkTag ? ChunkStep(cpu) : LastStep(cpu);
}

void ChunkModel::Fail(Cpu& cpu, bool leased) const {
  std::uint8_t& pc = cpu.self().pc;
  if (leased) {
    pc = kDrop;
  } else if (cpu.reg(rAttempts) > 1) {
    --cpu.reg(rAttempts);
    // A bound handle keeps what it was opened with.
    const bool bound = config_.handle && pc > kCheckOpen;
    for (int i = bound ? rChunkSeq : rFileSeq; i <= rLocation; ++i) cpu.reg(i) = 0;
    pc = bound ? kReadChunkSeq : kReadFileSeq;
  } else {
    cpu.self().reg = Registers{};
    pc = kFinished;
  }
}

void ChunkModel::NextRead(Cpu& cpu) const {
  const std::uint8_t reads = static_cast<std::uint8_t>(cpu.reg(rReads) - 1);
  if (reads == 0) {
    cpu.self().reg = Registers{};
    cpu.self().pc = kFinished;
    return;
  }
  cpu.reg(rReads) = reads;
  cpu.reg(rChunkSeq) = cpu.reg(rFirst) = cpu.reg(rLocation) = 0;
  cpu.self().pc = kReadChunkSeq;
}

void ChunkModel::FileStep(Cpu& cpu) const {
  std::uint8_t& pc = cpu.self().pc;
  switch (pc) {
    case kReadFileSeq:
      cpu.reg(rFileSeq) = cpu.Load(kFileSeq);
      if (cpu.reg(rFileSeq) % 2 != 0) return Fail(cpu, false);
      pc = kReadSize;
      return;
    case kReadSize:
      cpu.reg(rSize) = cpu.Load(kFileSize);
      pc = kReadTag;
      return;
    case kReadTag:
      cpu.reg(rTag) = cpu.Load(kFileTag);
      pc = kReadDeadline;
      return;
    case kReadDeadline:
      cpu.reg(rDeadline) = cpu.Load(kFileDeadline);
      pc = kReadClock;
      return;
    case kReadClock:
      cpu.reg(rNow) = cpu.Load(kClock);
      if (cpu.reg(rNow) >= cpu.reg(rDeadline)) return Fail(cpu, false);
      pc = config_.handle ? kCheckOpen : kReadChunkSeq;
      return;
    default:  // kCheckOpen: the handle is bound to one version
      if (cpu.Load(kFileSeq) != cpu.reg(rFileSeq)) return Fail(cpu, false);
      cpu.reg(rFileSeq) = 0;
      pc = kReadChunkSeq;
  }
}

void ChunkModel::ChunkStep(Cpu& cpu) const {
  std::uint8_t& pc = cpu.self().pc;
  switch (pc) {
    case kReadChunkSeq:
      cpu.reg(rChunkSeq) = cpu.Load(kChunkSeq);
      if (cpu.reg(rChunkSeq) % 2 != 0) return Fail(cpu, false);
      pc = kReadChunkKey;
      return;
    case kReadChunkKey:
      if (cpu.Load(kChunkKey) != kKeyA) return Fail(cpu, false);
      pc = kReadFirst;
      return;
    case kReadFirst:
      cpu.reg(rFirst) = cpu.Load(kChunkLocation);
      if (cpu.reg(rFirst) == 0) return Fail(cpu, false);
      pc = Is(ChunkMutation::kTagReadBeforeLease) ? kEarlyTag : kTakeLease;
      return;
    case kEarlyTag:
      if (cpu.Load(kChunkTag) != cpu.reg(rTag)) return Fail(cpu, false);
      pc = kTakeLease;
      return;
    case kTakeLease:
      cpu.Exchange(kLease, LeaseWord(kKeyA, 0));  // fill 0: the wider claim; the fill number has its own model
      pc = kReadLocation;
      return;
    case kReadLocation:
      cpu.reg(rLocation) = cpu.Load(kChunkLocation);
      if (cpu.reg(rLocation) == 0) return Fail(cpu, true);
      pc = Is(ChunkMutation::kTagReadBeforeLease) ? kFileSeqLast : kReadChunkTag;
      if (pc == kFileSeqLast && config_.handle) pc = kUseOnce;
      return;
    default: {  // kReadChunkTag
      const std::uint8_t tag = cpu.Load(kChunkTag);
      if (tag != cpu.reg(rTag) && !Is(ChunkMutation::kTagNotCompared)) return Fail(cpu, true);
      pc = kChunkSeqLast;
      if (Is(ChunkMutation::kChunkSequenceNotReread)) pc = kFileSeqLast;
      if (pc == kFileSeqLast && config_.handle) pc = kUseOnce;
    }
  }
}

void ChunkModel::LastStep(Cpu& cpu) const {
  std::uint8_t& pc = cpu.self().pc;
  switch (pc) {
    case kChunkSeqLast:
      if (cpu.Load(kChunkSeq) != cpu.reg(rChunkSeq)) return Fail(cpu, true);
      pc = config_.handle || Is(ChunkMutation::kFileSequenceNotReread) ? kUseOnce : kFileSeqLast;
      return;
    case kFileSeqLast:
      if (cpu.Load(kFileSeq) != cpu.reg(rFileSeq)) return Fail(cpu, true);
      pc = kUseOnce;
      return;
    case kUseOnce:
    case kUseAgain: {
      const std::uint8_t bytes = cpu.Load(kFrame0 + FrameOf(cpu.reg(rLocation)));
      cpu.Say(std::string("reads ") + kContentNames[bytes] + " as A v" + std::to_string(cpu.reg(rSize)));
      if (bytes != ContentOf(kKeyA, cpu.reg(rSize))) return cpu.Violate(kWrongBytes);
      if (cpu.reg(rNow) >= ValidUntil(bytes)) return cpu.Violate(kExpired);
      pc = pc == kUseOnce ? kUseAgain : kGiveBack;
      return;
    }
    case kGiveBack:
      cpu.Store(kLease, 0, kRelease);
      return NextRead(cpu);
    default:  // kDrop
      cpu.Store(kLease, 0, kRelease);
      return Fail(cpu, false);
  }
}

}  // namespace tierd::model
