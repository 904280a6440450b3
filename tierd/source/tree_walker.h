// Lists directory trees of one source on worker threads of its own and hands batches of entries to the loop. Used for
// prefetch (names only: the read brings the stat anyway), du and listings (with stat), and warm-up.
//
// Owner: the engine, one per source. Loop thread only; callbacks run on the loop thread inside Poll(), and may call any
// function of the walker except its destructor. The destructor waits for no hung worker.
// It does not follow symbolic links, and does not enter mounts below the root.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tierd/base/clock.h"
#include "tierd/io/io_engine.h"
#include "tierd/source/blocking_pool.h"
#include "tierd/source/request_budget.h"
#include "tierd/source/source.h"

namespace tierd::source {

struct WalkEntry {
  std::string name;        // within the batch's directory
  std::uint8_t type = 0;   // DT_REG, DT_DIR, DT_LNK, ...; never DT_UNKNOWN unless its stat failed or something is mounted there
  bool has_stat = false;
  std::uint64_t ino = 0;
  std::uint64_t place = 0;  // in the order in which the directory gave its entries
  io::FileStat stat;       // with has_stat
};

// Some entries of one directory. A directory comes as one or more batches (in any order when stats run in parallel), then exactly
// one with `last`, which may be empty. All batches of one directory come before the walk's on_done.
struct WalkBatch {
  std::string directory;   // relative to the source's root, "" for the root
  std::vector<WalkEntry> entries;
  bool last = false;       // the directory is complete (or failed: `error`)
  int error = 0;           // with last: errno of opening or reading the directory; the entries given so far may be partial
  io::FileStat stat;       // with last: the directory itself, statted before it was read; valid if error == 0
};

struct WalkTotals {
  std::uint64_t directories = 0;
  std::uint64_t files = 0;       // regular
  std::uint64_t others = 0;      // symlinks, sockets, ...
  std::uint64_t bytes = 0;       // sizes of regular files, with_stat only
  std::uint64_t errors = 0;      // directories or stats that failed
  std::uint64_t outside = 0;     // mounts below the root, not entered
  std::uint64_t hung = 0;        // directories given up because a worker hangs in them
  int first_error = 0;
  bool cancelled = false;
  bool complete() const { return errors == 0 && hung == 0 && !cancelled; }
};

struct WalkRequest {
  std::string path;              // relative to the source's root; a directory
  bool recursive = true;
  bool with_stat = false;
  std::function<void(const WalkBatch&)> on_batch;
  std::function<void(const WalkTotals&)> on_done;  // exactly once, also after Cancel()
};

struct WalkerOptions {
  std::uint32_t threads = 16;             // workers at most; started when needed. Range 1..128
  std::uint32_t max_replacements = 16;    // further workers in place of hung ones. Range 0..128
  std::int64_t hung_after_ns = 30'000'000'000;  // a directory operation that takes longer counts as hung
  std::uint32_t max_batches = 256;        // batches waiting for the loop before workers pause: bounds memory
  std::uint32_t batch_entries = 512;      // with stats 64 at most, so that workers share large directories. Range 1..65536
  // What the requests are taken from: one for a directory and its first 512 names, one for each further 512, one for each stat.
  std::shared_ptr<RequestBudget> budget = std::make_shared<RequestBudget>(0);  // shared with the source's reader and all workers
  bool low_priority = false;              // whether it leaves the last quarter of that to demand
};

enum class WalkId : std::uint64_t {};

class TreeWalker {
 public:
  TreeWalker(std::shared_ptr<const Source> source, const Clock& clock, const WalkerOptions& options);
  ~TreeWalker();
  TreeWalker(const TreeWalker&) = delete;
  TreeWalker& operator=(const TreeWalker&) = delete;

  WalkId Start(WalkRequest request);
  // No further on_batch; on_done follows in a later Poll(), at once or when the workers noticed.
  void Cancel(WalkId id);
  // A walk that rests lists no further directory until it goes on: what was listed before still comes, and of each directory under way a block of 65,536 names at most. Other walks
  // go on meanwhile. One that is over: nothing happens.
  void Rest(WalkId id);
  void GoOn(WalkId id);
  // Runs at most `budget` callbacks; returns how many ran.
  std::size_t Poll(std::size_t budget);
  // Replaces hung workers and ends walks that only hung ones keep open. Every second or so while walks are active.
  void Tick(std::int64_t now_ns);
  // Readable when Poll has something to do. Constant.
  int event_fd() const;
  // Walks whose on_done has not run.
  std::size_t active() const;
  // Workers that hang now.
  std::size_t hung_workers() const;

 private:
  struct Walk;       // what the tasks of one walk share
  struct Directory;  // what the tasks of one directory share
  struct Active;
  struct Delivery;
  class Crawl;       // runs on the workers
  void Deliver(std::uint64_t id, const Delivery& delivery);
  void Finish(std::uint64_t id);
  void Return(std::uint64_t id, Active& active);

  // Constant after construction.
  std::shared_ptr<const Source> source_;  // shared with the workers
  WalkerOptions options_;
  // Owned by the loop thread.
  std::unordered_map<std::uint64_t, std::shared_ptr<Active>> walks_;  // shared with the callback that runs
  std::uint64_t last_id_ = 0;
  BlockingPool pool_;  // last: its closures refer to the rest
};

}  // namespace tierd::source
