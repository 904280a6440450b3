#include "tests/model/explorer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>

namespace tierd::model {
namespace {

// Hash of a state -> number of schedules from it to the end. 64-bit hashes: with 3 * 10^7 states two of them meet with p < 3 * 10^-5.
class Memo {
 public:
  static constexpr std::uint64_t kUnfinished = std::numeric_limits<std::uint64_t>::max();

  // The place of the key; `found` says whether it was there. Valid until the next call.
  std::uint64_t* Find(std::uint64_t key, bool& found) {
    if ((used_ + 1) * 3 > slots_.size() * 2) Grow();
    if (key == 0) key = 1;
    std::size_t i = key & mask_;
    while (slots_[i].key != 0 && slots_[i].key != key) i = (i + 1) & mask_;
    found = slots_[i].key == key;
    if (!found) {
      slots_[i].key = key;
      ++used_;
    }
    return &slots_[i].count;
  }
  std::uint64_t used() const { return used_; }

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint64_t count = kUnfinished;
  };
  void Grow() {
    std::vector<Entry> old = std::move(slots_);
    slots_.assign(old.empty() ? 1 << 14 : old.size() * 2, Entry());
    mask_ = slots_.size() - 1;
    for (const Entry& entry : old) {
      if (entry.key == 0) continue;
      std::size_t i = entry.key & mask_;
      while (slots_[i].key != 0) i = (i + 1) & mask_;
      slots_[i] = entry;
    }
  }
  std::vector<Entry> slots_;
  std::size_t mask_ = 0;
  std::uint64_t used_ = 0;
};

struct Move {
  std::uint8_t thread;
  bool flush;
  std::uint8_t which;  // choice, or place in the buffer
};

std::uint64_t SaturatingAdd(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  return a > kMax - std::min(b, kMax) ? kMax : a + b;
}

class Search {
 public:
  Search(const Model& model, Order order, const Limits& limits) : model_(model), order_(order), limits_(limits) {}

  Outcome Run() {
    Outcome outcome;
    outcome.schedules = Visit(model_.Initial(), kNobody, 0);
    outcome.violated = violated_;
    outcome.complete = !violated_ && !given_up_;
    outcome.states = memo_.used();
    outcome.preemptions = limits_.preemptions;
    if (violated_) outcome.text = Retell();
    return outcome;
  }

 private:
  static constexpr int kNobody = kMaxThreads;

  bool CanRun(const State& state, int thread) const {
    const ThreadState& self = state.thread[static_cast<std::size_t>(thread)];
    return self.buffered < kBufferEntries && model_.Choices(state, thread) > 0;
  }

  std::uint64_t KeyOf(const State& state, int last, int preemptions) const {
    if (limits_.preemptions < 0) return XXH3_64bits(&state, sizeof(state));
    return XXH3_64bits_withSeed(&state, sizeof(state), static_cast<std::uint64_t>(last * 64 + preemptions + 1));
  }

  // The number of schedules that go on from `state`, which was reached by a step of `last`.
  std::uint64_t Visit(const State& state, int last, int preemptions) {
    if (state.violation != 0) {
      violated_ = true;
      bad_ = path_;
      return 0;
    }
    const std::uint64_t key = KeyOf(state, last, preemptions);
    bool found = false;
    const std::uint64_t* known = memo_.Find(key, found);
    if (found) return *known == Memo::kUnfinished ? 0 : *known;
    if (memo_.used() >= limits_.states) {
      given_up_ = true;
      return 0;
    }
    const std::uint64_t schedules = Expand(state, last, preemptions);
    *memo_.Find(key, found) = schedules;
    return schedules;
  }

  std::uint64_t Expand(const State& state, int last, int preemptions) {
    std::uint64_t schedules = 0;
    bool moved = false;
    const bool last_can_run = last != kNobody && CanRun(state, last) && !model_.Sleeps(state, last);
    for (int turn = 0; turn < model_.threads() && !Done(); ++turn) {
      const int thread = last == kNobody ? turn : (last + turn) % model_.threads();  // go on with the same one first
      if (!CanRun(state, thread)) continue;
      const int cost = last_can_run && thread != last ? 1 : 0;
      moved = true;
      if (limits_.preemptions >= 0 && preemptions + cost > limits_.preemptions) continue;
      const int choices = model_.Choices(state, thread);
      for (int choice = 0; choice < choices && !Done(); ++choice) {
        State next = state;
        Cpu cpu(next, thread, order_, model_, nullptr);
        model_.Step(cpu, choice);
        schedules = SaturatingAdd(schedules, Follow(next, {Byte(thread), false, Byte(choice)}, thread, preemptions + cost));
      }
    }
    for (int thread = 0; thread < model_.threads() && !Done(); ++thread) {
      for (int i = 0; i < kBufferEntries && !Done(); ++i) {
        if (!MayFlush(state.thread[static_cast<std::size_t>(thread)], i, order_)) continue;
        moved = true;
        State next = state;
        Flush(next, thread, i);
        schedules = SaturatingAdd(schedules, Follow(next, {Byte(thread), true, Byte(i)}, last, preemptions));
      }
    }
    if (moved) return schedules;
    if (model_.AtEnd(state) != 0) {
      violated_ = true;
      bad_ = path_;
    }
    return 1;
  }

  std::uint64_t Follow(const State& next, Move move, int last, int preemptions) {
    path_.push_back(move);
    const std::uint64_t schedules = Visit(next, last, preemptions);
    path_.pop_back();
    return schedules;
  }

  // The schedule that failed, step by step.
  std::string Retell() const {
    State state = model_.Initial();
    std::string text;
    int number = 0;
    for (const Move& move : bad_) {
      std::vector<std::string> lines;
      if (move.flush) {
        const BufferedStore& store = state.thread[move.thread].buffer[move.which];
        lines.push_back("memory    " + model_.ThreadName(move.thread) + "'s " + model_.CellName(store.cell) + " = " +
                        std::to_string(store.value) + " becomes visible");
        Flush(state, move.thread, move.which);
      } else {
        Cpu cpu(state, move.thread, order_, model_, &lines);
        model_.Step(cpu, move.which);
      }
      for (const std::string& line : lines) {
        std::string index = std::to_string(++number);
        index.insert(0, index.size() < 4 ? 4 - index.size() : 0, ' ');
        text += index + "  " + line + "\n";
      }
    }
    const std::uint8_t code = state.violation != 0 ? state.violation : model_.AtEnd(state);
    return std::string(OrderName(order_)) + ": " + model_.ViolationText(code) + "\n" + text;
  }

  bool Done() const { return violated_ || given_up_; }
  static std::uint8_t Byte(int value) { return static_cast<std::uint8_t>(value); }

  const Model& model_;
  const Order order_;
  const Limits limits_;
  Memo memo_;
  std::vector<Move> path_;
  std::vector<Move> bad_;
  bool violated_ = false;
  bool given_up_ = false;
};

}  // namespace

Outcome Explore(const Model& model, Order order, const Limits& limits) { return Search(model, order, limits).Run(); }

Outcome FindViolation(const Model& model, Order order, int max_preemptions) {
  Outcome outcome;
  for (int preemptions = 0; preemptions <= max_preemptions; ++preemptions) {
    outcome = Explore(model, order, {.preemptions = preemptions, .states = 30'000'000});
    if (outcome.violated || !outcome.complete) return outcome;
  }
  return outcome;
}

}  // namespace tierd::model
