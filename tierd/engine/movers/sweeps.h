// Walks over everything that is known at or below a path, a slice per turn of the loop (HAZARDS 5): evict, invalidate, unpin, du of a million files keep
// nobody waiting. All that wait are served by one pass that goes round the catalogue: each ends where it has begun, however many there are. Two that want
// the same done are one: what is asked for is done once, whether or not those who asked still listen.
//
// Owner: Engine. Loop thread only. It does not look at the source (jobs do).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tierd/base/clock.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/sources/source_unit.h"

namespace tierd::engine {

class Sweeps {
 public:
  static constexpr std::size_t kMost = 16'384;          // waiting; more are refused
  static constexpr std::size_t kSlotsPerStep = 65'536;  // catalogue entries looked at in a slice, at most 1 ms
  static constexpr std::size_t kRemembered = 64;        // invalidations that have ended

  Sweeps(Catalogue& catalogue, const Clock& clock) : catalogue_(catalogue), clock_(clock) {}

  // What is done to each file. Sweeps of the same kind (but kOther) and path are one, with the first one's `visit`.
  enum class Kind : std::uint8_t { kOther, kEvict, kUnpin, kInvalidate, kAliases, kDoubt };
  struct Request {
    const SourceUnit* unit = nullptr;
    std::string path;                                   // relative; "" is everything
    Kind kind = Kind::kOther;
    // kInvalidate: MonotonicNs at which it was said, when it is told again; 0: now. A sweep that has begun since serves, also one that has ended.
    std::int64_t said_ns = 0;
    std::function<bool(FileId)> visit;                  // of each file, directory and link known; whether it counts
    std::function<void(bool complete, std::uint64_t counted)> done;  // once; not complete: memory ran out, or too many wait
    bool always = false;                                // however many wait
  };
  // A path that is a known file is visited, and `done` called, inside this call, unless it is to be invalidated. Otherwise what becomes known in the meantime may be missed or met.
  void Start(Request request);
  // One slice. True: there is more to do at once.
  bool Step();
  bool idle() const { return ends_.empty(); }

  // After all sweeps that meet a file have visited it, if one of them invalidates: the record may go.
  std::function<void(FileId)> on_invalidated;

 private:
  struct Sweep {
    const SourceUnit* unit = nullptr;
    std::string path;
    Kind kind = Kind::kOther;
    std::function<bool(FileId)> visit;
    std::uint64_t counted = 0;
    std::size_t ends = 0;  // to come
    bool failed = false;
  };
  // Where a sweep has gone round for somebody. In the order in which they come.
  struct End {
    Sweep* sweep = nullptr;
    std::uint64_t round = 0;
    std::size_t position = 0;
    std::int64_t begun_ns = 0;
    std::uint64_t counted_before = 0;
    std::vector<std::function<void(bool, std::uint64_t)>> done;
  };
  using Paths = std::unordered_map<std::string, std::vector<Sweep*>>;

  bool Served(const Request& request);
  Sweep* Find(const Request& request);
  Sweep* Add(Request& request);
  void Remove(Sweep* sweep);
  void Slice();
  // What it has cost, in entries passed by.
  std::size_t Visit(FileId file);
  const std::vector<Sweep*>& SweepsAbove(std::uint16_t source, std::uint32_t dir);
  bool Reached(const End& end) const { return round_ > end.round + 1 || (round_ > end.round && position_ >= end.position); }
  void FinishReached();

  // Constant after construction.
  Catalogue& catalogue_;
  const Clock& clock_;
  // Owned by the loop thread.
  std::unordered_map<Sweep*, std::unique_ptr<Sweep>> sweeps_;
  std::vector<Paths> by_path_;       // by source
  std::deque<End> ends_;
  std::size_t waiting_ = 0;          // callbacks
  std::size_t position_ = 0;         // in the catalogue
  std::uint64_t round_ = 0;
  unsigned failures_ = 0;            // of the slice at this position, in a row
  // The sweeps that the entries of one directory belong to: neighbours mostly share it.
  bool above_known_ = false;
  std::uint16_t above_source_ = 0;
  std::uint32_t above_dir_ = 0;
  std::uint64_t above_left_ = 0;     // Catalogue::directories_left then
  std::vector<Sweep*> above_;
  struct Invalidated {
    const SourceUnit* unit = nullptr;
    std::string path;
    std::int64_t begun_ns = 0;
  };
  std::array<Invalidated, kRemembered> invalidated_;
  std::size_t next_invalidated_ = 0;
};

}  // namespace tierd::engine
