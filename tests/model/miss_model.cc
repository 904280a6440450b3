#include "tests/model/miss_model.h"

#include "tests/model/act_list.h"

namespace tierd::model {

namespace {

enum Cell { kLocation, kFrame0, kLease = kFrame0 + 2, kRequest0, kReply0 = kRequest0 + 3, kCellsUsed = kReply0 + 6 };
constexpr int kQueue = 3;  // messages on the way, each way; a reply is two cells: id, location
static_assert(kCellsUsed <= kCells);

enum Violation : std::uint8_t { kWrongBytes = 1, kStarved = 2 };
enum Pc : std::uint8_t { kTakeLease, kLookUp, kSendRequest, kWait, kLateLease, kLookAgain, kNarrow, kUseOnce, kUseAgain, kGiveBack, kDrop, kFinished };
enum Reg { rId, rAsksLeft, rLocation, rAnswered };

// ---- the daemon
enum DaemonReg { dActsLeft = kFirstFreeRegister, dNextFill, dLocation, dFrame, dFrames };
enum Act { kServe, kEvict, kScan, kFillOther, kActs };

int Waiting(const State& state, int first, int stride) {
  int n = 0;
  while (n < kQueue && state.cell[static_cast<std::size_t>(first + n * stride)] != 0) ++n;
  return n;
}

class MissActs final : public ActList {
 public:
  MissActs(const MissConfig& config, const State& state, Registers& d) : ActList(d), config_(config), state_(state), frames_(d, dFrames, 2) {}
  int count() const override { return kActs; }
  const char* Name(int act) const override {
    static const char* const kNames[kActs] = {"answer", "evict", "scan leases", "fill another file"};
    return kNames[act];
  }
  FrameNotes& frames() override { return frames_; }

  bool Possible(int act) override {
    if (act == kServe) {
      return Waiting(state_, kRequest0, 1) > 0 && Waiting(state_, kReply0, 2) < kQueue && (d_[dLocation] != 0 || frames_.Free() >= 0);
    }
    if (d_[dActsLeft] == 0) return false;
    if (act == kEvict) return d_[dLocation] != 0;
    if (act == kScan) return frames_.AnyLimbo();
    return frames_.Free() >= 0;
  }
  void Start(int act) override {
    if (act != kServe) --d_[dActsLeft];
    d_[dFrame] = static_cast<std::uint8_t>(frames_.Free() < 0 ? 0 : frames_.Free());
    if (act == kScan) frames_.BeginScan();
  }
  OpList Ops(int act) override {
    OpList list;
    switch (act) {
      case kServe:
        if (d_[dLocation] == 0) {
          list.Add(Op::kStore, kFrame0 + d_[dFrame], ContentOf(kKeyA, 1));
          list.Add(Op::kStore, kLocation, NewLocation(), kRelease);
        }
        list.Add(Op::kSend, 0, d_[dLocation] == 0 ? NewLocation() : d_[dLocation]);
        break;
      case kEvict: list.Add(Op::kStore, kLocation, 0); break;
      case kScan:
        list.Add(Op::kFence);
        list.Add(Op::kLoadLease, kLease);
        break;
      default: list.Add(Op::kStore, kFrame0 + d_[dFrame], ContentOf(kKeyB, 1)); break;  // read, used and dropped: the frame stays free
    }
    return list;
  }
  void Commit(int act) override {
    if (act == kServe && d_[dLocation] == 0) {
      frames_.Take(d_[dFrame], ContentOf(kKeyA, 1), LeaseWord(kKeyA, d_[dNextFill]));
      d_[dLocation] = NewLocation();
      ++d_[dNextFill];
    } else if (act == kEvict) {
      frames_.Retire(FrameOf(d_[dLocation]));
      d_[dLocation] = 0;
    } else if (act == kScan) {
      frames_.EndScan();
    }
    d_[dFrame] = 0;
  }
  // The request leaves its queue and the reply enters the other; a system call orders everything before it.
  void Send(Cpu& cpu, const Op& op) override {
    cpu.Fence();
    auto& cell = cpu.state().cell;
    const int reply = kReply0 + 2 * Waiting(cpu.state(), kReply0, 2);
    cell[static_cast<std::size_t>(reply)] = cell[kRequest0];
    cell[static_cast<std::size_t>(reply + 1)] = op.value;
    cpu.Say("replies to request " + std::to_string(cell[kRequest0]) + ": location " + std::to_string(op.value));
    for (int i = 0; i + 1 < kQueue; ++i) cell[static_cast<std::size_t>(kRequest0 + i)] = cell[static_cast<std::size_t>(kRequest0 + i + 1)];
    cell[kRequest0 + kQueue - 1] = 0;
  }

 private:
  std::uint8_t NewLocation() const { return LocationWord(d_[dFrame], d_[dNextFill]); }
  const MissConfig& config_;
  const State& state_;
  FrameNotes frames_;
};

}  // namespace

State MissModel::Initial() const {
  State state;
  state.thread[0].reg[rId] = 1;
  state.thread[0].reg[rAsksLeft] = static_cast<std::uint8_t>(config_.asks);
  if (Is(MissMutation::kLeaseAfterReply)) state.thread[0].pc = kSendRequest;
  Registers& d = state.thread[1].reg;
  d[dActsLeft] = static_cast<std::uint8_t>(config_.acts);
  d[dNextFill] = 1;
  return state;
}

std::string MissModel::CellName(int cell) const {
  if (cell == kLocation) return "location";
  if (cell < kLease) return "frame" + std::to_string(cell - kFrame0);
  if (cell == kLease) return "lease";
  return cell < kReply0 ? "request" : "reply";
}

std::string MissModel::ViolationText(std::uint8_t code) const {
  return code == kStarved ? "every request was answered with a frame, and the reader never got bytes" : "the reader used bytes of another file";
}

int MissModel::Choices(const State& state, int thread) const {
  const ThreadState& self = state.thread[static_cast<std::size_t>(thread)];
  if (thread == 1) {
    Registers d = self.reg;
    return MissActs(config_, state, d).Choices();
  }
  if (self.pc == kFinished) return 0;
  if (self.pc == kWait) return state.cell[kReply0] != 0 ? 2 : 1;  // the last choice is the timeout
  if (self.pc == kSendRequest && Waiting(state, kRequest0, 1) == kQueue) return 0;
  return 1;
}

// The reader waits for its reply, the daemon between two acts for something to do.
bool MissModel::Sleeps(const State& state, int thread) const {
  return thread == 0 ? state.thread[0].pc == kWait : state.thread[1].reg[kActRegister] == 0;
}

void MissModel::Step(Cpu& cpu, int choice) const {
  if (cpu.thread() == 1) {
    MissActs(config_, cpu.state(), cpu.self().reg).Step(cpu, choice);
  } else {
    ReaderStep(cpu, choice);
  }
}

// The next ask, or the end. Without bytes although every request was answered: starved.
void MissModel::AskAgain(Cpu& cpu) const {
  const bool answered = cpu.reg(rAnswered) != 0;
  const bool last = cpu.reg(rAsksLeft) <= 1;
  if (last && answered && cpu.reg(rAnswered) == config_.asks) return cpu.Violate(kStarved);
  cpu.reg(rLocation) = 0;
  if (last) {
    cpu.reg(rId) = cpu.reg(rAsksLeft) = cpu.reg(rAnswered) = 0;
    cpu.self().pc = kFinished;
    return;
  }
  --cpu.reg(rAsksLeft);
  ++cpu.reg(rId);
  cpu.self().pc = Is(MissMutation::kLeaseAfterReply) ? kSendRequest : kTakeLease;
}

void MissModel::TakeReply(Cpu& cpu) const {
  auto& cell = cpu.state().cell;
  const std::uint8_t id = cell[kReply0];
  const std::uint8_t location = cell[kReply0 + 1];
  for (int i = 0; i + 2 < 2 * kQueue; ++i) cell[static_cast<std::size_t>(kReply0 + i)] = cell[static_cast<std::size_t>(kReply0 + i + 2)];
  cell[kReply0 + 2 * kQueue - 2] = cell[kReply0 + 2 * kQueue - 1] = 0;
  cpu.Say("receives the reply to request " + std::to_string(id) + " while it waits for " + std::to_string(cpu.reg(rId)));
  if (id != cpu.reg(rId) && !Is(MissMutation::kS1bLateReply)) return;  // nobody waits for it any more
  ++cpu.reg(rAnswered);
  cpu.reg(rLocation) = location;
  cpu.self().pc = Is(MissMutation::kS1cReplyWithoutFrame) ? kLookAgain : (Is(MissMutation::kLeaseAfterReply) ? kLateLease : kNarrow);
}

void MissModel::ReaderStep(Cpu& cpu, int choice) const {
  std::uint8_t& pc = cpu.self().pc;
  switch (pc) {
    case kTakeLease:
      cpu.Exchange(kLease, LeaseWord(kKeyA, 0));
      pc = kLookUp;
      return;
    case kLookUp:
      cpu.reg(rLocation) = cpu.Load(kLocation);
      pc = cpu.reg(rLocation) != 0 ? kUseOnce : kSendRequest;
      return;
    case kSendRequest:
      cpu.Fence();
      cpu.state().cell[static_cast<std::size_t>(kRequest0 + Waiting(cpu.state(), kRequest0, 1))] = cpu.reg(rId);
      cpu.Say("sends request " + std::to_string(cpu.reg(rId)));
      pc = kWait;
      return;
    case kWait: {
      const bool timeout = choice == (cpu.state().cell[kReply0] != 0 ? 1 : 0);
      cpu.Fence();
      if (!timeout) return TakeReply(cpu);
      cpu.Say("has waited long enough");
      pc = kDrop;
      return;
    }
    case kLateLease:
      cpu.Exchange(kLease, LeaseWord(kKeyA, 0));
      pc = kNarrow;
      return;
    case kLookAgain:
      cpu.reg(rLocation) = cpu.Load(kLocation);
      pc = cpu.reg(rLocation) != 0 ? kUseOnce : kDrop;
      return;
    case kNarrow:
      cpu.Store(kLease, LeaseWord(kKeyA, FillOf(cpu.reg(rLocation))), kRelease);
      pc = kUseOnce;
      return;
    default: return Use(cpu);
  }
}

void MissModel::Use(Cpu& cpu) const {
  std::uint8_t& pc = cpu.self().pc;
  switch (pc) {
    case kUseOnce:
    case kUseAgain: {
      const std::uint8_t bytes = cpu.Load(kFrame0 + FrameOf(cpu.reg(rLocation)));
      cpu.Say(std::string("reads ") + kContentNames[bytes]);
      if (bytes != ContentOf(kKeyA, 1)) return cpu.Violate(kWrongBytes);
      pc = pc == kUseOnce ? kUseAgain : kGiveBack;
      return;
    }
    case kGiveBack:
      cpu.Store(kLease, 0, kRelease);
      cpu.reg(rAsksLeft) = 1;
      cpu.reg(rAnswered) = 0;
      return AskAgain(cpu);
    default:  // kDrop
      cpu.Store(kLease, 0, kRelease);
      return AskAgain(cpu);
  }
}

}  // namespace tierd::model
