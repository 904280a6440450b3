#include "tests/model/session_model.h"

#include "tests/model/act_list.h"

namespace tierd::model {

namespace {

enum Cell { kLocation, kFrame0, kLease = kFrame0 + 2, kRevoked, kProcess, kSocket, kChild };  // kProcess: alive; kSocket: open descriptors
constexpr int kDaemon = 1;  // threads: process, daemon, child
constexpr int kChildThread = 2;

enum Pc : std::uint8_t {
  kTakeLease, kLookUp, kTestRevokedFirst, kLookOnce, kTestRevokedLast, kLookAgain, kGiveBack, kFork, kExit, kFinished,
};
enum Reg { rLocation, rBytes };

enum DaemonReg { dActsLeft = kFirstFreeRegister, dNextFill, dLocation, dFrame, dSessionCounts, dEofSeen, dFrames };
enum Act { kEvict, kScan, kReuse, kEof, kEndSession, kActs };

class SessionActs final : public ActList {
 public:
  SessionActs(const SessionConfig& config, const State& state, Registers& d) : ActList(d), config_(config), state_(state), frames_(d, dFrames, 2) {}
  int count() const override { return kActs; }
  const char* Name(int act) const override {
    static const char* const kNames[kActs] = {"evict", "scan leases", "fill another file", "end of file on the socket", "the session ends"};
    return kNames[act];
  }
  FrameNotes& frames() override { return frames_; }

  bool Possible(int act) override {
    if (act == kEof) return !config_.fork && d_[dEofSeen] == 0;  // the application closed it, at any moment
    if (act == kEndSession) return d_[dSessionCounts] != 0 && Ended();
    if (d_[dActsLeft] == 0) return false;
    if (act == kEvict) return d_[dLocation] != 0;
    if (act == kScan) return frames_.AnyLimbo();
    return frames_.Free() >= 0;
  }
  void Start(int act) override {
    if (act < kEof) --d_[dActsLeft];
    d_[dFrame] = static_cast<std::uint8_t>(frames_.Free() < 0 ? 0 : frames_.Free());
    if (act == kScan) frames_.BeginScan();
  }
  OpList Ops(int act) override {
    OpList list;
    switch (act) {
      case kEvict: list.Add(Op::kStore, kLocation, 0); break;
      case kScan:
        list.Add(Op::kFence);
        if (d_[dSessionCounts] != 0) list.Add(Op::kLoadLease, kLease);
        break;
      case kReuse: list.Add(Op::kStore, kFrame0 + d_[dFrame], ContentOf(kKeyB, 1)); break;
      case kEof: list.Add(Op::kExchange, kRevoked, 1); break;
      default: list.Add(Op::kFence); break;
    }
    return list;
  }
  void Commit(int act) override {
    if (act == kEvict) {
      frames_.Retire(FrameOf(d_[dLocation]));
      d_[dLocation] = 0;
    } else if (act == kScan) {
      frames_.EndScan();
    } else if (act == kEof) {
      d_[dEofSeen] = 1;
      const bool drops = Is(SessionMutation::kS3aDroppedAtEof) || Is(SessionMutation::kS3bRevokedBeforeCopy) || Is(SessionMutation::kS3cRevokedAfterCopy);
      if (drops) d_[dSessionCounts] = 0;
    } else if (act == kEndSession) {
      d_[dSessionCounts] = 0;
    }
    d_[dFrame] = 0;
  }

 private:
  bool Is(SessionMutation mutation) const { return config_.mutation == mutation; }
  // The rule: the process is gone (pidfd) *and* nobody holds the socket any more.
  bool Ended() const {
    const bool socket_closed = state_.cell[kSocket] == 0 || !config_.fork;
    return state_.cell[kProcess] == 0 && (socket_closed || Is(SessionMutation::kEndsWithTheParent));
  }
  const SessionConfig& config_;
  const State& state_;
  FrameNotes frames_;
};

}  // namespace

State SessionModel::Initial() const {
  State state;
  state.cell[kLocation] = LocationWord(0, 1);
  state.cell[kFrame0] = ContentOf(kKeyA, 1);
  state.cell[kProcess] = 1;
  state.cell[kSocket] = 1;
  Registers& d = state.thread[kDaemon].reg;
  d[dActsLeft] = static_cast<std::uint8_t>(config_.acts);
  d[dNextFill] = 2;
  d[dLocation] = LocationWord(0, 1);
  d[dSessionCounts] = 1;
  FrameNotes(d, dFrames, 2).Take(0, ContentOf(kKeyA, 1), LeaseWord(kKeyA, 1));
  state.thread[kChildThread].pc = kFork;  // not born
  return state;
}

std::string SessionModel::CellName(int cell) const {
  static const char* const kNames[] = {"location", "frame0", "frame1", "lease", "revoked", "process_alive", "socket_holders", "child_alive"};
  return kNames[cell];
}

std::string SessionModel::ThreadName(int thread) const {
  if (thread == kDaemon) return "daemon";
  return thread == kChildThread ? "child" : (config_.fork ? "parent" : "reader");
}

int SessionModel::Choices(const State& state, int thread) const {
  const ThreadState& self = state.thread[static_cast<std::size_t>(thread)];
  if (thread == kDaemon) {
    Registers d = self.reg;
    return SessionActs(config_, state, d).Choices();
  }
  if (self.pc == kFinished || (thread == kChildThread && self.pc == kFork)) return 0;
  return 1;
}

void SessionModel::Step(Cpu& cpu, int choice) const {
  switch (cpu.thread()) {
    case kDaemon: return SessionActs(config_, cpu.state(), cpu.self().reg).Step(cpu, choice);
    case kChildThread: return ChildStep(cpu);
    default: return config_.fork && cpu.self().pc >= kGiveBack ? ParentStep(cpu) : ReaderStep(cpu);
  }
}

// One look at the bytes.
void SessionModel::Look(Cpu& cpu, std::uint8_t next) const {
  cpu.reg(rBytes) = cpu.Load(kFrame0 + FrameOf(cpu.reg(rLocation)));
  cpu.Say(std::string("reads ") + kContentNames[cpu.reg(rBytes)]);
  cpu.self().pc = next;
}

void SessionModel::ReaderStep(Cpu& cpu) const {
  std::uint8_t& pc = cpu.self().pc;
  const std::uint8_t good = ContentOf(kKeyA, 1);
  switch (pc) {
    case kTakeLease:
      cpu.Exchange(kLease, LeaseWord(kKeyA, 0));
      pc = kLookUp;
      return;
    case kLookUp:
      cpu.reg(rLocation) = cpu.Load(kLocation);
      pc = cpu.reg(rLocation) == 0 ? kExit : (Is(SessionMutation::kS3bRevokedBeforeCopy) ? kTestRevokedFirst : kLookOnce);
      return;
    case kTestRevokedFirst:
      pc = cpu.Load(kRevoked) != 0 ? kExit : kLookOnce;
      return;
    case kLookOnce:
      Look(cpu, config_.zero_copy ? kLookAgain : kGiveBack);
      // A copy counts when it is handed out; with the test after it that is one step later.
      if (Is(SessionMutation::kS3cRevokedAfterCopy)) {
        pc = kTestRevokedLast;
      } else if (cpu.reg(rBytes) != good) {
        cpu.Violate(1);
      }
      return;
    case kTestRevokedLast:
      if (cpu.Load(kRevoked) != 0) {
        pc = kExit;
      } else if (cpu.reg(rBytes) != good) {
        cpu.Violate(1);
      } else {
        pc = config_.zero_copy ? kLookAgain : kGiveBack;
      }
      return;
    case kLookAgain:
      Look(cpu, kGiveBack);
      if (cpu.reg(rBytes) != good) cpu.Violate(1);
      if (config_.fork) pc = kFork;
      return;
    case kGiveBack:
      cpu.Store(kLease, 0, kRelease);
      pc = kExit;
      return;
    default:  // kExit
      cpu.SetDirectly(kProcess, 0);
      cpu.reg(rLocation) = cpu.reg(rBytes) = 0;
      pc = kFinished;
  }
}

// After its last look the parent forks, drops its reference and exits. Its leases of that moment are frozen: nobody clears them.
void SessionModel::ParentStep(Cpu& cpu) const {
  std::uint8_t& pc = cpu.self().pc;
  ThreadState& child = cpu.state().thread[kChildThread];
  switch (pc) {
    case kFork:
      cpu.Fence();
      cpu.Say("forks");
      child.pc = kLookOnce;
      child.reg[rLocation] = cpu.reg(rLocation);
      cpu.state().cell[kChild] = 1;
      cpu.state().cell[kSocket] = 2;
      pc = kGiveBack;
      return;
    case kGiveBack:
      if (Is(SessionMutation::kParentClearsFrozenLease)) {
        cpu.Store(kLease, 0, kRelease);
      } else {
        cpu.Fence();
        cpu.Say("drops its reference; the lease is frozen and stays");
      }
      pc = kExit;
      return;
    default:  // kExit, also of a process that found nothing
      cpu.Fence();
      cpu.Say("exits");
      cpu.state().cell[kProcess] = 0;
      --cpu.state().cell[kSocket];
      cpu.reg(rLocation) = cpu.reg(rBytes) = 0;
      pc = kFinished;
  }
}

void SessionModel::ChildStep(Cpu& cpu) const {
  std::uint8_t& pc = cpu.self().pc;
  switch (pc) {
    case kLookOnce:
    case kLookAgain:
      Look(cpu, pc == kLookOnce ? kLookAgain : kExit);
      if (pc == kLookAgain && Is(SessionMutation::kChildClosesTheSocket)) --cpu.state().cell[kSocket];
      if (cpu.reg(rBytes) != ContentOf(kKeyA, 1)) cpu.Violate(1);
      return;
    default:  // kExit
      cpu.Fence();
      cpu.Say("exits");
      cpu.state().cell[kChild] = 0;
      if (!Is(SessionMutation::kChildClosesTheSocket)) --cpu.state().cell[kSocket];
      cpu.reg(rLocation) = cpu.reg(rBytes) = 0;
      pc = kFinished;
  }
}

}  // namespace tierd::model
