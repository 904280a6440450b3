// The disk's state machine (FAULTS F05-F09, as in JuiceFS): healthy -> degraded -> out and back, by errors in a window, by hung
// requests and by successes in a row.
//
// A value of the tier; loop thread only. Time is passed in. It counts and answers; it does no I/O.
#pragma once

#include <cstdint>
#include <deque>

#include "tierd/ssd/ssd_tier.h"

namespace tierd::ssd {

// No room for what was to be written, by the file system, a quota or a limit of file sizes: says nothing about the device.
bool SpeaksOfSpace(int error);

class Health {
 public:
  explicit Health(const SsdOptions& options) : options_(options) {}

  // The device failed a request (not one that speaks of space).
  void OnError(std::int64_t now_ns);
  // Bytes came back wrong: may degrade, never takes the device out by itself.
  void OnCorrupt(std::int64_t now_ns);
  void OnReadSuccess(std::int64_t latency_ns);
  void OnWriteSuccess();
  // `hung` requests are older than options.hung_read_ns.
  void OnHung(std::int64_t now_ns, std::size_t hung);

  bool MayAppend() const { return state_ == SsdHealth::kHealthy; }
  bool MayRead(std::size_t in_flight) const;
  // True at most once per probe interval while not healthy: the tier sends a probe.
  bool ProbeDue(std::int64_t now_ns);

  SsdHealth state() const { return state_; }
  // Ill for requests that hang, or did, alone: none has failed since it was well.
  bool stalls() const { return state_ != SsdHealth::kHealthy && !failed_; }
  std::int64_t read_latency_ns() const { return read_latency_ns_; }

 private:
  void Fail(std::int64_t now_ns, bool may_go_out);
  void Succeed();
  void Enter(SsdHealth state);

  const SsdOptions& options_;
  SsdHealth state_ = SsdHealth::kHealthy;
  std::deque<std::int64_t> errors_;  // times within the window; at most options_.out_errors
  unsigned successes_ = 0;           // in a row, while not healthy
  bool failed_ = false;              // a request, while not healthy
  std::int64_t last_probe_ns_ = 0;
  std::int64_t read_latency_ns_ = 0;
};

}  // namespace tierd::ssd
