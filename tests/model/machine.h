// A small shared-memory machine whose every behaviour can be visited: a few one-byte cells, up to three threads, and between each
// thread and the cells a store buffer. Under SC the buffer is not used; under TSO (x86) stores reach the cells in program order, some time
// later; under PSO also out of order, except as release stores and store fences forbid. Loads happen in program order in all three.
//
// Value types without pointers: a State is hashed and copied as bytes. No thread rule (the threads are modelled, not run).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace tierd::model {

inline constexpr int kMaxThreads = 3;
inline constexpr int kCells = 40;
inline constexpr int kRegisters = 28;
inline constexpr int kBufferEntries = 10;  // a thread whose buffer is full waits: behaviours that need more are not visited

enum class Order : std::uint8_t { kSc, kTso, kPso };
const char* OrderName(Order order);

struct BufferedStore {
  std::uint8_t cell = 0;
  std::uint8_t value = 0;
  std::uint8_t flags = 0;  // kRelease, kAfterFence
};
inline constexpr std::uint8_t kPlain = 0;
inline constexpr std::uint8_t kRelease = 1;     // not before any earlier store
inline constexpr std::uint8_t kAfterFence = 2;  // a store fence stands before it: it and all later stores come after all earlier ones

struct ThreadState {
  std::uint8_t pc = 0;
  std::uint8_t buffered = 0;
  std::array<BufferedStore, kBufferEntries> buffer{};  // oldest first; unused entries are zero
  std::array<std::uint8_t, kRegisters> reg{};
};

struct State {
  std::array<std::uint8_t, kCells> cell{};
  std::array<ThreadState, kMaxThreads> thread{};
  std::uint8_t violation = 0;  // 0: none; else the model's code
};
static_assert(std::is_trivially_copyable_v<State> && alignof(State) == 1, "hashed as bytes");

// Whether buffered store `i` of the thread may become visible now.
bool MayFlush(const ThreadState& thread, int i, Order order);
void Flush(State& state, int thread, int i);

class Model;

// What one step of a thread may do: exactly one access to a cell, besides its own registers.
class Cpu {
 public:
  Cpu(State& state, int thread, Order order, const Model& model, std::vector<std::string>* trace)
      : state_(state), thread_(thread), order_(order), model_(model), trace_(trace) {}

  std::uint8_t Load(int cell);
  void Store(int cell, std::uint8_t value, std::uint8_t flags = kPlain);
  // A locked instruction: full fence, then the store, at once.
  std::uint8_t Exchange(int cell, std::uint8_t value);
  void Fence();
  // A hardware clock, or anything else that is no store of this thread.
  void SetDirectly(int cell, std::uint8_t value);
  // Adds to the line of the current step.
  void Say(const std::string& text);
  void Violate(std::uint8_t code) { state_.violation = code; }

  int thread() const { return thread_; }
  ThreadState& self() { return state_.thread[static_cast<std::size_t>(thread_)]; }
  std::uint8_t& reg(int i) { return self().reg[static_cast<std::size_t>(i)]; }
  State& state() { return state_; }
  bool traced() const { return trace_ != nullptr; }

 private:
  void Drain();
  void Line(const std::string& text);

  State& state_;
  const int thread_;
  const Order order_;
  const Model& model_;
  std::vector<std::string>* trace_;
};

// A protocol: threads as step machines.
class Model {
 public:
  virtual ~Model() = default;
  virtual int threads() const = 0;
  virtual State Initial() const = 0;
  // In how many ways the thread's next step can go; 0: it has finished or waits for another thread.
  virtual int Choices(const State& state, int thread) const = 0;
  virtual void Step(Cpu& cpu, int choice) const = 0;
  // The thread sleeps in a call: to go on with another one is no preemption.
  virtual bool Sleeps(const State&, int) const { return false; }
  // A violation seen only when nobody can go on; 0: none.
  virtual std::uint8_t AtEnd(const State&) const { return 0; }
  virtual std::string CellName(int cell) const = 0;
  virtual std::string ThreadName(int thread) const = 0;
  virtual std::string ViolationText(std::uint8_t code) const = 0;
};

}  // namespace tierd::model
