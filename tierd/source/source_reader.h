// Reads files of one source into memory that the caller provides: priorities, an adaptive number of requests in flight,
// byte and request budgets, deadlines, and the checks that make a copy trustworthy (double fstat, version, device).
//
// Owner: the engine, one per source. Loop thread only; callbacks run on the loop thread inside Poll() or Tick(), never
// inside Submit*(), Promote() or Cancel(), and may call any function of the reader except its destructor.
// It does not: allocate frames, cache, know chunks or datasets, or decide what to read ahead.
//
// A loop turn: Submit*() any number of times, then Flush() once. When event_fd() is readable: Poll() (which flushes too).
// Tick() at next_tick_ns() or earlier.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tierd/base/clock.h"
#include "tierd/base/status.h"
#include "tierd/io/io_engine.h"
#include "tierd/source/request_budget.h"
#include "tierd/source/source.h"

namespace tierd::source {

enum class Priority : std::uint8_t { kDemand = 0, kReadAhead = 1, kPrefetch = 2 };
inline constexpr std::size_t kPriorities = 3;

// Why a request ended. Everything but kNone means that the buffer holds nothing to be used.
enum class ReadError : std::uint8_t {
  kNone = 0,
  kErrno = 1,       // the source said so: sys_errno, to be given to the application as it is and never cached
  kNotRegular = 2,  // directory, FIFO, socket, device
  kOutside = 3,     // the file lies on a mount below the root
  kChanged = 4,     // not the expected version (`version` says what is there now), or changed during every attempt
  kTimeout = 5,     // deadline passed; see buffer_held
  kHung = 6,        // refused at once: as many requests hang as the cap allows
  kNoBuffer = 7,    // ReadRequest::acquire had no memory, or tierd itself no descriptor or memory, time and again
  kStopped = 8,     // Stop()
};
inline constexpr std::size_t kReadErrors = 9;
// "ok", "errno", "not_regular", ...: metric labels, stable.
const char* ReadErrorName(ReadError error);

struct ReadResult {
  ReadError error = ReadError::kNone;
  int sys_errno = 0;              // with kErrno
  std::size_t bytes = 0;          // with kNone; less than the capacity only at the end of the file, more only into ReadRequest::rest
  std::byte* buffer = nullptr;    // where they are: the request's or the acquired buffer; nullptr if none was taken
  io::FileStat version;           // with kNone and kChanged
  std::int64_t stat_sent_ns = 0;  // PreciseNs when the confirming fstat was asked for: base of the deadline (HAZARDS 2.11)
  // The stamps are younger than racy_window: a later write may leave the version as it is, so the copy is served until
  // its first deadline and then read again, not only stated again (HAZARDS 2.12).
  bool racy = false;
  // So young that it may well have been written to just then: half of a file, perhaps.
  bool in_the_making = false;
  // This source changes ctime or ino on its own; the copy is confirmed by (size, mtime) only (HAZARDS W8).
  bool weak_version = false;
  // The I/O still runs: the buffer is not the caller's until on_buffer_free. Only ever set with kTimeout and kStopped.
  bool buffer_held = false;
};

struct StatReply {
  ReadError error = ReadError::kNone;  // kNone, kErrno, kOutside, kTimeout, kHung, kNoBuffer, kStopped
  int sys_errno = 0;
  io::FileStat stat;                   // any file type
  bool opened = false;                 // StatQuery::open was set, and the file was opened
  std::int64_t stat_sent_ns = 0;
  bool racy = false;
  bool in_the_making = false;
};

using ReadCallback = std::function<void(const ReadResult&)>;
using StatReplyCallback = std::function<void(const StatReply&)>;

// One piece of one file (a chunk, or a small file as a whole: offset 0, capacity >= its size), or several that follow one another.
struct ReadRequest {
  std::string path;           // canonical, relative to the root; symlinks are refused (ELOOP)
  std::uint64_t offset = 0;
  std::size_t capacity = 0;   // bytes wanted at most, > 0
  // Destination, or nullptr with acquire set: that is called when the request is about to be sent (so that a queue of 10,000
  // prefetches holds no memory), sets `buffer`, and may change offset, capacity and further pieces; false: kNoBuffer. It may make
  // other requests. For O_DIRECT to be used addresses, offset and lengths must be multiples of Source::direct_alignment().
  std::byte* buffer = nullptr;
  std::function<bool(ReadRequest&)> acquire;
  std::vector<iovec> further;  // where the bytes behind `capacity` go, as in io::FileReadRequest
  // Takes, with the same look at the file, what it has beyond `capacity`, up to rest->most() bytes more; ReadResult::bytes counts
  // them too. Where the rest could not get memory the result ends at the capacity. Shared with the I/O: to be left alone until
  // `done`, or on_buffer_free, has run. May be null.
  std::shared_ptr<io::RestBuffer> rest;
  std::optional<io::FileStat> expected;  // version the caller needs; another one ends in kChanged without retry
  Priority priority = Priority::kDemand;
  // MonotonicNs at which the waiter gives up: `done` gets kTimeout then, once, whatever the I/O does. 0: none.
  std::int64_t deadline_ns = 0;
  ReadCallback done;           // exactly once, unless Cancel() returned true
  // After a `done` with buffer_held, exactly once: the buffer is the caller's again. The argument is what the late
  // completion would have said; kNone there means that the bytes are good.
  ReadCallback on_buffer_free;
};

struct StatQuery {
  std::string path;           // canonical, relative to the root; "" for the root; a last symlink is not followed
  // The file is opened for it, as for a read, if it is a regular one: the source says whether it may be read.
  bool open = false;
  Priority priority = Priority::kDemand;
  std::int64_t deadline_ns = 0;
  StatReplyCallback done;     // exactly once, unless Cancel() returned true
};

// A larger hung_cap counts as this one: each hung request keeps a thread, or a request of the ring.
inline constexpr std::uint32_t kMostHung = 496;

struct SourceOptions {
  // Requests in flight: where the window starts, and between which bounds it adapts. It doubles with every windowful, so a
  // small start costs a few latencies and shows what the source does when it is not busy. Raising the maximum costs a thread
  // each on the thread-pool engine; 0 = 64 for each processor, 128 to 384. Range 1..448. Not reloadable.
  std::uint32_t window_min = 4;
  std::uint32_t window_start = 8;
  std::uint32_t window_max = 0;
  // Demand requests that may be in flight beyond the window. Range 1..64. Not reloadable.
  std::uint32_t demand_reserve = 32;
  // Budgets, 0 = none. Reloadable. All requests count, demand is served first. A request is one look at a file, with an open and a close
  // or without, and what is read of it with that: a few operations of the file system.
  std::uint64_t bytes_per_second = 0;
  std::uint64_t requests_per_second = 0;
  // Queued requests; more are refused with kHung (demand) or kNoBuffer (others). Range 1..10'000'000.
  std::uint32_t queue_max = 4'000'000;
  // A request in flight for longer is counted as hung even without a deadline: takes no window slot. Default 10 s.
  std::int64_t hung_after_ns = 10'000'000'000;
  // Hung requests (each holds a buffer) before new demand is refused. Range 1..512. Not reloadable.
  std::uint32_t hung_cap = 64;
  // While the source is hung, one request per interval is let through to see whether it is back. Default 1 s.
  std::int64_t probe_interval_ns = 1'000'000'000;
  // Reads of a file that changes under us before kChanged is the answer. Range 1..10.
  std::uint32_t version_attempts = 4;
  // Stamps younger than this are not trusted (HAZARDS 2.12). Default 10 s. 0: always trusted.
  std::int64_t racy_window_ns = 10'000'000'000;
  // Smallest request for which O_DIRECT is worth its alignment; below, buffered + DONTNEED.
  std::size_t direct_min_bytes = 1 << 20;
  // Whether O_DIRECT is used at all.
  bool direct = true;
  // Engine: nullopt = measured on the first small files that come in hundreds (both are tried on real traffic; nothing is read twice);
  // until then, and unless the other is faster by a quarter, threads on a network file system and io_uring on others.
  std::optional<io::EngineKind> engine;
};

enum class SourceState : std::uint8_t {
  kUp = 0,
  kSlow = 1,  // some requests hang, others complete
  kHung = 2,  // the cap is reached: demand is refused at once, the caller answers bypass
};
const char* SourceStateName(SourceState state);

// Latency buckets: 100 us doubling up to 100 us * 2^20 (105 s), then everything above.
inline constexpr std::size_t kLatencyBuckets = 22;

// A copy of everything a metrics page or `tierctl status` shows. Counters never go back.
struct SourceCounters {
  std::array<std::uint64_t, kReadErrors> reads{};  // ended read requests by ReadError
  std::array<std::uint64_t, kReadErrors> stats{};  // StatQuery::open or not
  std::array<std::uint64_t, kPriorities> sent{};   // requests handed to the engine (retries included), by priority
  std::uint64_t bytes_read = 0;                    // bytes that arrived, discarded ones included
  std::uint64_t bytes_discarded = 0;               // version mismatch, late
  std::uint64_t version_retries = 0;
  std::uint64_t stale_reopens = 0;
  std::uint64_t weak_versions = 0;
  std::uint64_t racy_reads = 0;
  std::uint64_t hung_total = 0;                    // requests that were ever declared hung
  std::uint64_t late_completions = 0;              // of those, how many came back
  std::uint64_t refused_hung = 0;
  std::uint64_t window_cuts = 0;
  std::array<std::uint64_t, kLatencyBuckets> latency{};  // of reads, send to completion
  std::uint64_t latency_ns_sum = 0;
  std::array<std::uint64_t, kLatencyBuckets> stat_latency{};
  std::uint64_t stat_latency_ns_sum = 0;
  // Gauges.
  std::array<std::uint64_t, kPriorities> queued{};
  std::uint64_t in_flight = 0;                     // hung ones not included
  std::uint64_t hung = 0;
  std::uint32_t window = 0;
  SourceState state = SourceState::kUp;
  const char* engine = "";                         // IoEngine::name() of the one in use; while both are measured, of the one before
};

using EngineFactory =
    std::function<Result<std::unique_ptr<io::IoEngine>>(io::EngineKind, const io::EngineOptions&)>;

// Names a request until its callback ran; never reused.
enum class RequestId : std::uint64_t {};

class SourceReader {
 public:
  // `clock` outlives the reader. `factory` is io::MakeEngine outside tests. Fails only if no engine can be made.
  static Result<std::unique_ptr<SourceReader>> Create(std::shared_ptr<const Source> source, EngineFactory factory,
                                                      const Clock& clock, const SourceOptions& options);
  // Calls back nobody. Requests in flight are abandoned: Stop() first, and see IoEngine about their buffers.
  virtual ~SourceReader() = default;

  virtual RequestId Read(ReadRequest request) = 0;
  virtual RequestId Stat(StatQuery query) = 0;
  // A waiter joined: raises the priority (never lowers it) and sets the deadline if it had none (an existing later one stays).
  // No effect on requests that are over.
  virtual void Promote(RequestId id, Priority priority, std::int64_t deadline_ns) = 0;
  // True: it had not been sent and is gone, no callback will run. False: it runs (or is over); `done` comes.
  virtual bool Cancel(RequestId id) = 0;

  // Sends what window and budgets allow. Once per loop turn.
  virtual void Flush() = 0;
  // Runs at most `budget` completions, then Flush(). Returns how many ran.
  virtual std::size_t Poll(std::size_t budget) = 0;
  // Deadlines, hung requests, budgets. `now_ns` is Clock::MonotonicNs.
  virtual void Tick(std::int64_t now_ns) = 0;
  // When Tick has something to do next; INT64_MAX: nothing.
  virtual std::int64_t next_tick_ns() const = 0;
  // Readable when Poll has something to do. Constant.
  virtual int event_fd() const = 0;

  // Ends every queued request with kStopped, waits up to timeout_ms for those in flight (Poll included) and ends the rest
  // with kStopped + buffer_held. Returns how many still run. After it, requests end with kStopped.
  virtual std::size_t Stop(int timeout_ms) = 0;

  virtual void SetBudgets(std::uint64_t bytes_per_second, std::uint64_t requests_per_second) = 0;
  // What its requests are taken from, to be shared with whoever else asks this source. Constant.
  virtual std::shared_ptr<RequestBudget> request_budget() const = 0;
  // Whether two stats show the same version, by the standard this source allows: all five fields, or (size, mtime) where
  // the source changes the others on its own.
  virtual bool SameVersion(const io::FileStat& a, const io::FileStat& b) const = 0;
  // Whether the stamps that a stat sent at `stat_sent_ns` (MonotonicNs) has shown are younger than racy_window: the file may still be in the making.
  virtual bool IsYoung(const io::FileStat& stat, std::int64_t stat_sent_ns) const = 0;
  // Tells that a file was seen unchanged at local time `seen_ns` (RealtimeNs) and now has `now_is`: bounds the difference
  // between the source's clock and ours, which the racy window uses.
  virtual void NoteChange(std::int64_t seen_ns, const io::FileStat& now_is) = 0;

  virtual SourceState state() const = 0;
  virtual SourceCounters counters() const = 0;
  // SourceCounters::bytes_read alone.
  virtual std::uint64_t bytes_read() const = 0;
  // One line for `doctor`: engine and why, window, O_DIRECT, clock difference, weak versions.
  virtual std::string Report() const = 0;
};

}  // namespace tierd::source
