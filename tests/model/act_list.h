// The daemon of every model here does acts, one after the other: each a list of stores, fences and lease loads that follows from the daemon's own
// notes (it is the only writer). The notes change at the last step of an act. Which act comes next is the explorer's choice.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tests/model/frame_notes.h"
#include "tests/model/machine.h"

namespace tierd::model {

struct Op {
  enum Kind : std::uint8_t {
    kStore, kExchange, kFence,
    kLoadHigh,   // value: the register that takes it
    kLoadLease,
    kSet,        // a clock, a process that ends: no store of this thread
    kSend,       // a message: Send()
  } kind = kStore;
  std::uint8_t cell = 0;
  std::uint8_t value = 0;
  std::uint8_t flags = kPlain;
};

struct OpList {
  std::array<Op, 24> op{};
  int count = 0;
  void Add(Op::Kind kind, int cell = 0, int value = 0, std::uint8_t flags = kPlain) {
    op[static_cast<std::size_t>(count++)] = {kind, static_cast<std::uint8_t>(cell), static_cast<std::uint8_t>(value), flags};
  }
};

// Registers 0 and 1 of a daemon belong to this.
inline constexpr int kActRegister = 0;   // act + 1; 0 between acts
inline constexpr int kStepRegister = 1;
inline constexpr int kFirstFreeRegister = 2;

class ActList {
 public:
  explicit ActList(Registers& registers) : d_(registers) {}
  virtual ~ActList() = default;
  virtual int count() const = 0;
  virtual const char* Name(int act) const = 0;
  virtual bool Possible(int act) = 0;
  virtual void Start(int act) = 0;
  virtual OpList Ops(int act) = 0;  // at least one
  virtual void Commit(int act) = 0;
  virtual FrameNotes& frames() = 0;
  virtual void Send(Cpu&, const Op&) {}

  // For Model::Choices and Model::Step.
  int Choices() {
    if (d_[kActRegister] != 0) return 1;
    int choices = 0;
    for (int act = 0; act < count(); ++act) choices += Possible(act) ? 1 : 0;
    return choices;
  }
  void Step(Cpu& cpu, int choice) {
    if (d_[kActRegister] == 0) {
      int act = 0;
      while (!Possible(act) || choice-- != 0) ++act;
      d_[kActRegister] = static_cast<std::uint8_t>(act + 1);
      Start(act);
    }
    const int act = d_[kActRegister] - 1;
    Do(cpu, Ops(act).op[d_[kStepRegister]]);
    cpu.Say(std::string("[") + Name(act) + "]");
    ++d_[kStepRegister];
    if (d_[kStepRegister] < Ops(act).count) return;
    Commit(act);
    d_[kActRegister] = d_[kStepRegister] = 0;
  }

 protected:
  Registers& d_;

 private:
  void Do(Cpu& cpu, const Op& op) {
    switch (op.kind) {
      case Op::kStore: cpu.Store(op.cell, op.value, op.flags); break;
      case Op::kExchange: cpu.Exchange(op.cell, op.value); break;
      case Op::kFence: cpu.Fence(); break;
      case Op::kLoadHigh: d_[op.value] = cpu.Load(op.cell); break;
      case Op::kLoadLease: frames().Look(cpu.Load(op.cell)); break;
      case Op::kSet: cpu.SetDirectly(op.cell, op.value); break;
      case Op::kSend: Send(cpu, op); break;
    }
  }
};

}  // namespace tierd::model
