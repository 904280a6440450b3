// The daemon of SlotModel: what each act stores, and in which order.
#include "tests/model/act_list.h"
#include "tests/model/slot_cells.h"
#include "tests/model/slot_model.h"

namespace tierd::model {

using namespace slot;

namespace {

enum Reg {
  dActsLeft = kFirstFreeRegister, dTickLeft, dChosenFrame, dNextFill, dPhase, dRetiredStored,
  dSeq, dKey, dVer, dDeadline, dLocation,                    // what the slot says
  dHigh0, dHigh1,                                            // of the scan
  dFrames,
};
static_assert(dFrames + FrameNotes::kRegistersUsed(kMaxSlotFrames) <= kRegisters);
enum Phase : std::uint8_t { kOneTable, kBothTables, kNewTable };

// What REUSE and VERSION write.
int NextKey(const Registers& d, int act) { return act == kReuse ? (d[dKey] == kKeyA ? kKeyB : kKeyA) : d[dKey]; }
int NextVersion(const Registers& d, int act) { return act == kVersion ? 2 : d[dVer]; }

class SlotActs final : public ActList {
 public:
  SlotActs(const SlotConfig& config, Registers& d) : ActList(d), config_(config), frames_(d, dFrames, config.frames) {}

  int count() const override { return kActs; }
  const char* Name(int act) const override {
    static const char* const kNames[kActs] = {"evict",      "scan leases",       "fill",        "reuse slot",      "change version", "compact",
                                              "copy table", "publish new table", "time passes", "retire old table"};
    return kNames[act];
  }
  FrameNotes& frames() override { return frames_; }

  bool Possible(int act) override {
    if (act == kTick) return d_[dTickLeft] != 0;
    if (act == kRetireOld) return d_[dPhase] == kNewTable && d_[dRetiredStored] == 0 && Is(SlotMutation::kRetiredStoredLate);
    if ((config_.enabled & Bit(static_cast<Act>(act))) == 0 || d_[dActsLeft] == 0) return false;
    const bool room = frames_.Free() >= 0;
    switch (act) {
      case kEvict: return d_[dLocation] != 0;
      case kScan: return frames_.AnyLimbo();
      case kFill:
      case kReuse: return d_[dLocation] == 0 && room;
      case kVersion: return d_[dKey] == kKeyA && d_[dVer] == 1 && room;
      case kCompact: return d_[dLocation] != 0 && room;
      case kCopyTable: return d_[dPhase] == kOneTable;
      default: return d_[dPhase] == kBothTables;  // kPublish
    }
  }

  void Start(int act) override {
    if (act != kTick && act != kRetireOld) --d_[dActsLeft];
    const int frame = frames_.Free();
    d_[dChosenFrame] = static_cast<std::uint8_t>(frame < 0 ? 0 : frame);
    d_[dHigh0] = d_[dHigh1] = kLeaseSlotsModelled;
    const bool older_scan = act == kCompact && Is(SlotMutation::kFreedByOlderScan);
    if (act == kScan || older_scan) frames_.BeginScan();
    if (older_scan) frames_.AddCandidate(FrameOf(d_[dLocation]));
  }

  OpList Ops(int act) override {
    OpList list;
    switch (act) {
      case kEvict: Clear(list); break;
      case kScan: Scan(list); break;
      case kFill:
        Fill(list, d_[dKey], d_[dVer]);
        Locate(list, NewLocation());
        break;
      case kReuse:
      case kVersion: Rewrite(list, act); break;
      case kCompact:
        if (Is(SlotMutation::kFreedByOlderScan)) Scan(list);
        list.Add(Op::kStore, Frame(d_[dChosenFrame]), frames_.content(FrameOf(d_[dLocation])));
        Locate(list, NewLocation());
        break;
      case kCopyTable:
        for (int field = kSeq; field <= kLocation; ++field) {
          list.Add(Op::kStore, Table(1, static_cast<Field>(field)), d_[static_cast<std::size_t>(dSeq + field)]);
        }
        break;
      case kPublish:
        if (!Is(SlotMutation::kRetiredStoredLate)) list.Add(Op::kStore, Table(0, kRetired), 1, Publishing());
        list.Add(Op::kExchange, kPublished, 1);
        break;
      case kRetireOld: list.Add(Op::kStore, Table(0, kRetired), 1, kRelease); break;
      default: list.Add(Op::kSet, kClock, 1); break;
    }
    return list;
  }

  void Commit(int act) override {
    switch (act) {
      case kEvict:
        RetireFrame();
        d_[dLocation] = 0;
        break;
      case kScan: frames_.EndScan(); break;
      case kFill: Take(d_[dKey], d_[dVer]); break;
      case kReuse:
      case kVersion: {
        const int key = NextKey(d_, act);
        const int version = NextVersion(d_, act);
        RetireFrame();
        d_[dKey] = static_cast<std::uint8_t>(key);
        d_[dVer] = static_cast<std::uint8_t>(version);
        d_[dDeadline] = DeadlineOf(key, version);
        if (!(Is(SlotMutation::kS8aVersionWithoutSequence) && act == kVersion)) d_[dSeq] = static_cast<std::uint8_t>(d_[dSeq] + 2);
        Take(key, version);
        break;
      }
      case kCompact: {
        RetireFrame();
        Take(d_[dKey], d_[dVer]);
        if (Is(SlotMutation::kFreedByOlderScan)) frames_.EndScan();
        break;
      }
      case kCopyTable: d_[dPhase] = kBothTables; break;
      case kPublish: d_[dPhase] = kNewTable; break;
      case kRetireOld: d_[dRetiredStored] = 1; break;
      default: d_[dTickLeft] = 0; break;
    }
    d_[dChosenFrame] = d_[dHigh0] = d_[dHigh1] = 0;
  }

 private:
  bool Is(SlotMutation mutation) const { return config_.mutation == mutation; }
  std::uint8_t Publishing() const { return Is(SlotMutation::kM11PlainStores) ? kPlain : kRelease; }
  std::uint8_t NewLocation() const { return LocationWord(d_[dChosenFrame], d_[dNextFill]); }
  bool InOld() const { return d_[dPhase] != kNewTable; }
  bool InNew() const { return d_[dPhase] != kOneTable; }

  void Clear(OpList& list) const {
    const bool old_too = Is(SlotMutation::kM9bReplacesOnlyInNew) || Is(SlotMutation::kM9bClearsEveryDeparture);
    if (InOld() || old_too) list.Add(Op::kStore, Table(0, kLocation), 0);
    if (InNew()) list.Add(Op::kStore, Table(1, kLocation), 0);
  }
  void Fill(OpList& list, int key, int version) const { list.Add(Op::kStore, Frame(d_[dChosenFrame]), ContentOf(key, version)); }
  // Without a move of the sequence: the version stays.
  void Locate(OpList& list, std::uint8_t location) const {
    if (InOld()) list.Add(Op::kStore, Table(0, kLocation), location, Publishing());
    if (!InOld() && Is(SlotMutation::kM9bClearsEveryDeparture)) list.Add(Op::kStore, Table(0, kLocation), 0);
    if (InNew()) list.Add(Op::kStore, Table(1, kLocation), location, Publishing());
  }
  void Scan(OpList& list) const {
    if (!Is(SlotMutation::kM2NoDaemonFence)) list.Add(Op::kFence);
    for (int session = 0; session < config_.readers; ++session) {
      list.Add(Op::kLoadHigh, LeaseHigh(session), dHigh0 + session);
      const int high = d_[static_cast<std::size_t>(dHigh0 + session)];
      for (int i = 0; i < high; ++i) list.Add(Op::kLoadLease, Lease(session, config_.scan_high_first ? high - 1 - i : i));
    }
  }
  void Rewrite(OpList& list, int act) const {
    const int key = NextKey(d_, act);
    const int version = NextVersion(d_, act);
    const bool move_sequence = !(Is(SlotMutation::kS8aVersionWithoutSequence) && act == kVersion);
    const std::uint8_t after_odd = Is(SlotMutation::kM11PlainStores) ? kPlain : kAfterFence;
    Fill(list, key, version);
    if (!InOld() && Is(SlotMutation::kM9bClearsEveryDeparture)) list.Add(Op::kStore, Table(0, kLocation), 0);
    for (int table = 0; table < 2; ++table) {
      if (table == 0 ? !InOld() : !InNew()) continue;
      const bool early = Is(SlotMutation::kM7LocationBeforeSequence);
      if (early) list.Add(Op::kStore, Table(table, kLocation), NewLocation(), Publishing());
      if (move_sequence) list.Add(Op::kStore, Table(table, kSeq), d_[dSeq] + 1);
      if (act == kReuse) list.Add(Op::kStore, Table(table, kKey), key, after_odd);
      if (config_.deadline_first) list.Add(Op::kStore, Table(table, kDeadline), DeadlineOf(key, version), after_odd);
      list.Add(Op::kStore, Table(table, kVer), version, after_odd);
      if (!config_.deadline_first) list.Add(Op::kStore, Table(table, kDeadline), DeadlineOf(key, version));
      if (!early) list.Add(Op::kStore, Table(table, kLocation), NewLocation(), Publishing());
      if (move_sequence) list.Add(Op::kStore, Table(table, kSeq), d_[dSeq] + 2, Publishing());
    }
  }

  // The chosen frame holds this now and the slot says so.
  void Take(int key, int version) {
    frames_.Take(d_[dChosenFrame], ContentOf(key, version), LeaseWord(key, d_[dNextFill]));
    d_[dLocation] = NewLocation();
    ++d_[dNextFill];
  }
  void RetireFrame() {
    if (d_[dLocation] != 0) frames_.Retire(FrameOf(d_[dLocation]));
  }

  const SlotConfig& config_;
  FrameNotes frames_;
};

}  // namespace

void SlotModel::InitDaemon(State& state) const {
  Registers& d = state.thread[static_cast<std::size_t>(daemon())].reg;
  d[dActsLeft] = static_cast<std::uint8_t>(config_.acts);
  d[dTickLeft] = config_.clock_ticks ? 1 : 0;
  d[dNextFill] = 2;
  for (std::size_t field = kSeq; field <= kLocation; ++field) d[dSeq + field] = state.cell[field];  // of the old table
  FrameNotes(d, dFrames, config_.frames).Take(0, ContentOf(kKeyA, 1), LeaseWord(kKeyA, 1));
}

int SlotModel::DaemonChoices(const State& state) const {
  Registers d = state.thread[static_cast<std::size_t>(daemon())].reg;
  return SlotActs(config_, d).Choices();
}

void SlotModel::DaemonStep(Cpu& cpu, int choice) const { SlotActs(config_, cpu.self().reg).Step(cpu, choice); }

}  // namespace tierd::model
