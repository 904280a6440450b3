#include "tierd/ssd/health.h"

#include <cerrno>

namespace tierd::ssd {

namespace {
constexpr std::size_t kDegradedReads = 4;
}

const char* SsdHealthName(SsdHealth health) {
  switch (health) {
    case SsdHealth::kHealthy: return "healthy";
    case SsdHealth::kDegraded: return "degraded";
    case SsdHealth::kOut: return "out";
  }
  return "unknown";
}

bool SpeaksOfSpace(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

void Health::OnError(std::int64_t now_ns) { Fail(now_ns, true); }
void Health::OnCorrupt(std::int64_t now_ns) { Fail(now_ns, false); }

void Health::OnReadSuccess(std::int64_t latency_ns) {
  // Weight 1/16: settles within some dozen reads, hardly moves for one.
  read_latency_ns_ = read_latency_ns_ == 0 ? latency_ns : read_latency_ns_ + (latency_ns - read_latency_ns_) / 16;
  Succeed();
}

void Health::OnWriteSuccess() { Succeed(); }

void Health::OnHung(std::int64_t now_ns, std::size_t hung) {
  if (hung == 0) return;
  successes_ = 0;
  if (state_ == SsdHealth::kHealthy) Enter(SsdHealth::kDegraded);
  // A request that outlives the whole probe interval again and again takes the device out.
  if (hung >= options_.out_errors) Enter(SsdHealth::kOut);
  last_probe_ns_ = now_ns;
}

bool Health::MayRead(std::size_t in_flight) const {
  switch (state_) {
    case SsdHealth::kHealthy: return true;
    case SsdHealth::kDegraded: return in_flight < kDegradedReads;
    case SsdHealth::kOut: return false;
  }
  return false;
}

bool Health::ProbeDue(std::int64_t now_ns) {
  if (state_ == SsdHealth::kHealthy || now_ns - last_probe_ns_ < options_.probe_interval_ns) return false;
  last_probe_ns_ = now_ns;
  return true;
}

void Health::Fail(std::int64_t now_ns, bool may_go_out) {
  successes_ = 0;
  errors_.push_back(now_ns);
  while (!errors_.empty() && (now_ns - errors_.front() > options_.error_window_ns || errors_.size() > options_.out_errors)) {
    errors_.pop_front();
  }
  if (may_go_out && errors_.size() >= options_.out_errors) {
    Enter(SsdHealth::kOut);
  } else if (state_ == SsdHealth::kHealthy && errors_.size() >= options_.degrade_errors) {
    Enter(SsdHealth::kDegraded);
  }
  failed_ = state_ != SsdHealth::kHealthy;
}

void Health::Succeed() {
  if (state_ == SsdHealth::kHealthy || ++successes_ < options_.recover_successes) return;
  Enter(state_ == SsdHealth::kOut ? SsdHealth::kDegraded : SsdHealth::kHealthy);
}

void Health::Enter(SsdHealth state) {
  if (state_ == state) return;
  const bool better = state < state_;
  state_ = state;
  successes_ = 0;
  failed_ &= state != SsdHealth::kHealthy;
  if (better) errors_.clear();
}

}  // namespace tierd::ssd
