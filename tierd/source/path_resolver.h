// Finds the canonical name of a path below a source's root: the one spelling under which the file is cached (HAZARDS 2.14).
// Canonical = relative to the root, no "." or "..", no empty component, no symbolic link on the way or at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tierd/base/clock.h"
#include "tierd/base/status.h"
#include "tierd/io/io_engine.h"
#include "tierd/source/request_budget.h"
#include "tierd/source/source.h"

namespace tierd::source {

struct ResolvedPath {
  std::string canonical;   // relative to the root; "" is the root itself
  bool was_alias = false;  // the given path differs: it went through a link, "..", "." or doubled slashes
  io::FileStat stat;       // of the file itself, any type
  std::int64_t stat_sent_ns = 0;  // CLOCK_MONOTONIC when the stat was asked for
};

// Blocking (worker threads only). `path` is relative to the root, or absolute below root() or canonical_root().
// The kernel resolves, never string arithmetic; the result was opened again beneath the root without following links and is the same
// file. Errors: kPermission "... leaves the source" (links or ".." out of the root, a mount below it; sys_errno EXDEV), kInvalid
// (empty, NUL inside, longer than PATH_MAX; or absolute and not below the root), otherwise errno of the kernel (ENOENT: kNotFound, ELOOP, EACCES ...).
Result<ResolvedPath> ResolvePath(const Source& source, std::string_view path);

struct ResolverOptions {
  std::uint32_t threads = 4;           // workers at most; started when needed. Range 1..64
  std::uint32_t max_replacements = 16; // further workers in place of hung ones
  std::uint32_t queue_max = 4096;      // waiting requests; more end at once with kBusy
  std::int64_t hung_after_ns = 5'000'000'000;  // a worker busy for longer with one path counts as hung
  // What the requests are taken from, one for each path; they are demand.
  std::shared_ptr<RequestBudget> budget = std::make_shared<RequestBudget>(0);  // shared with the source's reader and all workers
};

// ResolvePath for the loop thread. Loop thread only; callbacks run inside Poll() or Tick(), never inside Resolve().
class PathResolver {
 public:
  PathResolver(std::shared_ptr<const Source> source, const Clock& clock, const ResolverOptions& options);
  ~PathResolver();
  PathResolver(const PathResolver&) = delete;
  PathResolver& operator=(const PathResolver&) = delete;

  // `done` runs exactly once: the result, kBusy (queue full) or kTimeout (deadline_ns on MonotonicNs passed; 0: none).
  void Resolve(std::string path, std::int64_t deadline_ns, std::function<void(const Result<ResolvedPath>&)> done);
  std::size_t Poll(std::size_t budget);
  void Tick(std::int64_t now_ns);
  std::int64_t next_tick_ns() const;
  int event_fd() const;
  std::size_t pending() const;
  std::size_t hung_workers() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tierd::source
