// Walks over everything that is known at or below a path, a slice per turn of the loop (HAZARDS 5): evict, invalidate, unpin, du of a million files keep
// nobody waiting. One after the other, in the order they were asked for.
//
// Owner: Engine. Loop thread only. It does not look at the source (jobs do).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "tierd/base/clock.h"
#include "tierd/engine/catalogue.h"
#include "tierd/engine/source_unit.h"

namespace tierd::engine {

class Sweeps {
 public:
  static constexpr std::size_t kMost = 16'384;          // waiting; more are refused
  static constexpr std::size_t kSlotsPerStep = 8192;    // catalogue entries looked at in a slice, at most 1 ms

  Sweeps(Catalogue& catalogue, const Clock& clock) : catalogue_(catalogue), clock_(clock) {}

  struct Request {
    const SourceUnit* unit = nullptr;
    std::string path;                                   // relative; "" is everything
    std::function<bool(FileId)> visit;                  // of each file, directory and link known; whether it counts
    std::function<void(bool complete, std::uint64_t counted)> done;  // once; not complete: memory ran out, or too many wait
    bool always = false;                                // however many wait
  };
  // A path that is a known file is visited, and `done` called, inside this call. Otherwise what becomes known in the meantime may be missed or met.
  void Start(Request request);
  // One slice. True: there is more to do.
  bool Step();
  bool idle() const { return waiting_.empty(); }

 private:
  struct Sweep {
    Request request;
    std::size_t position = 0;
    std::uint64_t counted = 0;
  };
  // True: the sweep has come to its end.
  bool Slice(Sweep& sweep);

  // Constant after construction.
  Catalogue& catalogue_;
  const Clock& clock_;
  // Owned by the loop thread.
  std::deque<Sweep> waiting_;
};

}  // namespace tierd::engine
