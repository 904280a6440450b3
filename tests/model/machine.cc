#include "tests/model/machine.h"

namespace tierd::model {

const char* OrderName(Order order) {
  switch (order) {
    case Order::kSc: return "SC";
    case Order::kTso: return "TSO";
    case Order::kPso: return "PSO";
  }
  return "?";
}

bool MayFlush(const ThreadState& thread, int i, Order order) {
  if (i >= thread.buffered) return false;
  if (i == 0) return true;
  if (order != Order::kPso) return false;
  const BufferedStore& store = thread.buffer[static_cast<std::size_t>(i)];
  if ((store.flags & kRelease) != 0) return false;
  for (int j = 0; j <= i; ++j) {
    const BufferedStore& earlier = thread.buffer[static_cast<std::size_t>(j)];
    if (j >= 1 && (earlier.flags & kAfterFence) != 0) return false;
    if (j < i && earlier.cell == store.cell) return false;
  }
  return true;
}

void Flush(State& state, int thread, int i) {
  ThreadState& self = state.thread[static_cast<std::size_t>(thread)];
  const BufferedStore store = self.buffer[static_cast<std::size_t>(i)];
  state.cell[store.cell] = store.value;
  for (int j = i; j + 1 < self.buffered; ++j) self.buffer[static_cast<std::size_t>(j)] = self.buffer[static_cast<std::size_t>(j) + 1];
  --self.buffered;
  self.buffer[self.buffered] = BufferedStore();
}

void Cpu::Drain() {
  while (self().buffered != 0) Flush(state_, thread_, 0);
}

void Cpu::Line(const std::string& text) {
  std::string name = model_.ThreadName(thread_);
  name.resize(10, ' ');
  trace_->push_back(name + text);
}

void Cpu::Say(const std::string& text) {
  if (trace_ == nullptr) return;
  if (trace_->empty()) Line("");
  trace_->back() += "   " + text;
}

std::uint8_t Cpu::Load(int cell) {
  std::uint8_t value = state_.cell[static_cast<std::size_t>(cell)];
  for (int i = self().buffered; i-- > 0;) {
    const BufferedStore& store = self().buffer[static_cast<std::size_t>(i)];
    if (store.cell != cell) continue;
    value = store.value;
    break;
  }
  if (trace_ != nullptr) Line("load " + model_.CellName(cell) + " -> " + std::to_string(value));
  return value;
}

void Cpu::Store(int cell, std::uint8_t value, std::uint8_t flags) {
  if (order_ == Order::kSc) {
    state_.cell[static_cast<std::size_t>(cell)] = value;
    if (trace_ != nullptr) Line("store " + model_.CellName(cell) + " = " + std::to_string(value));
    return;
  }
  self().buffer[self().buffered++] = {static_cast<std::uint8_t>(cell), value, flags};
  if (trace_ != nullptr) Line("store " + model_.CellName(cell) + " = " + std::to_string(value) + " (buffered)");
}

std::uint8_t Cpu::Exchange(int cell, std::uint8_t value) {
  Drain();
  const std::uint8_t old = state_.cell[static_cast<std::size_t>(cell)];
  state_.cell[static_cast<std::size_t>(cell)] = value;
  if (trace_ != nullptr) Line("xchg " + model_.CellName(cell) + " = " + std::to_string(value));
  return old;
}

void Cpu::Fence() {
  Drain();
  if (trace_ != nullptr) Line("fence");
}

void Cpu::SetDirectly(int cell, std::uint8_t value) {
  state_.cell[static_cast<std::size_t>(cell)] = value;
  if (trace_ != nullptr) Line(model_.CellName(cell) + " becomes " + std::to_string(value));
}

}  // namespace tierd::model
