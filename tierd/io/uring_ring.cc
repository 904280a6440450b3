#include "tierd/io/uring_ring.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "tierd/base/check.h"

namespace tierd::io {
namespace {

// Best first; a kernel that lacks a flag says EINVAL.
constexpr unsigned kTransferFlags =
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL;  // 6.1
constexpr unsigned kChainFlags =
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL;  // 6.0
constexpr unsigned kOlderFlags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL;  // 5.19
constexpr unsigned kOldestFlags = 0;

struct Needed {
  unsigned operation;
  const char* name;
};
constexpr Needed kNeeded[] = {
    {IORING_OP_NOP, "NOP"},     {IORING_OP_READ, "READ"},   {IORING_OP_READV, "READV"},     {IORING_OP_WRITE, "WRITE"},
    {IORING_OP_WRITEV, "WRITEV"}, {IORING_OP_STATX, "STATX"}, {IORING_OP_OPENAT2, "OPENAT2"}, {IORING_OP_CLOSE, "CLOSE"},
    {IORING_OP_FADVISE, "FADVISE"},
};

Status Refused(int error) {
  std::string why = "io_uring cannot be used: ";
  if (error == ENOSYS) {
    why += "this kernel or a seccomp filter does not have it (ENOSYS)";
  } else if (error == EPERM || error == EACCES) {
    why += "refused (EPERM: a seccomp filter, an LSM or kernel.io_uring_disabled)";
  } else if (error == ENOMEM) {
    why += "not enough lockable memory for the ring (ENOMEM: ulimit -l)";
  } else {
    return Status(Code::kUnsupported, why + Status::FromErrno(error, "io_uring_setup").message(), error);
  }
  return Status(Code::kUnsupported, std::move(why), error);
}

}  // namespace

Result<std::unique_ptr<UringRing>> UringRing::Create(const RingOptions& options) {
  std::unique_ptr<UringRing> ring(new UringRing(options.faults));
  if (Status status = ring->SetUp(options); !status.ok()) return status;
  if (Status status = ring->Probe(); !status.ok()) return status;
  if (const int error = io_uring_register_eventfd(&ring->ring_, options.event_fd); error < 0) return Refused(-error);
  // Saves the descriptor look-up of each enter; 5.18 and later.
  io_uring_register_ring_fd(&ring->ring_);
  return Result<std::unique_ptr<UringRing>>(std::move(ring));
}

UringRing::~UringRing() {
  if (ready_) io_uring_queue_exit(&ring_);
}

Status UringRing::SetUp(const RingOptions& options) {
  int error = 0;
  for (const unsigned flags : {options.style == RingStyle::kTransfers ? kTransferFlags : kChainFlags, kOlderFlags, kOldestFlags}) {
    io_uring_params params{};
    params.flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
    params.cq_entries = std::max(options.completion_entries, options.submission_entries);
    error = -io_uring_queue_init_params(options.submission_entries, &ring_, &params);
    ready_ = error == 0;
    if (ready_ && (params.features & IORING_FEAT_NODROP) == 0) {
      return Status(Code::kUnsupported, "io_uring cannot be used: this kernel drops completions (before 5.5)");
    }
    if (error != EINVAL) break;
  }
  return ready_ ? Status::Ok() : Refused(error);
}

Status UringRing::Probe() {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
  if (probe == nullptr) return Status(Code::kUnsupported, "io_uring cannot be used: its operations cannot be probed");
  std::string missing;
  for (const Needed& needed : kNeeded) {
    if (!io_uring_opcode_supported(probe, static_cast<int>(needed.operation))) missing += std::string(" ") + needed.name;
  }
  io_uring_free_probe(probe);
  if (missing.empty()) return Status::Ok();
  return Status(Code::kUnsupported, "io_uring cannot be used: this kernel lacks its operations" + missing);
}

bool UringRing::Reserve(unsigned count) {
  if (io_uring_sq_space_left(&ring_) >= count) return true;
  Submit();
  return io_uring_sq_space_left(&ring_) >= count;
}

io_uring_sqe* UringRing::Next() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  TIERD_CHECK(sqe != nullptr);
  return sqe;
}

bool UringRing::Submit() {
  while (HasUnsubmitted()) {
    const int submitted = Enter();
    if (submitted == -EINTR) continue;
    // Anything but a shortage is a misuse by us, such as the wrong thread.
    TIERD_CHECK(submitted >= 0 || submitted == -EAGAIN || submitted == -EBUSY || submitted == -ENOMEM);
    if (!HasUnsubmitted()) break;
    if (submitted <= 0) return false;
    CutBrokenChain();
  }
  return true;
}

int UringRing::Enter() {
  ++enters_;
  const unsigned pending = io_uring_sq_ready(&ring_);
  const unsigned limit = faults_ == nullptr ? pending : faults_->SubmitLimit(pending);
  return limit >= pending ? io_uring_submit(&ring_) : EnterLimited(limit);
}

// io_uring_submit, but for the first `limit` entries only.
int UringRing::EnterLimited(unsigned limit) {
  io_uring_sq& sq = ring_.sq;
  const unsigned mask = sq.ring_mask;
  unsigned tail = *sq.ktail;
  while (sq.sqe_head != sq.sqe_tail) sq.array[tail++ & mask] = sq.sqe_head++ & mask;
  io_uring_smp_store_release(sq.ktail, tail);
  return io_uring_enter(static_cast<unsigned>(ring_.ring_fd), limit, 0, 0, nullptr);
}

void UringRing::CutBrokenChain() {
  io_uring_sq& sq = ring_.sq;
  const unsigned mask = sq.ring_mask;
  const unsigned head = io_uring_smp_load_acquire(sq.khead);
  const unsigned tail = *sq.ktail;
  const auto entry = [&](unsigned at) -> io_uring_sqe& { return sq.sqes[sq.array[at & mask]]; };
  constexpr unsigned kLinks = IOSQE_IO_LINK | IOSQE_IO_HARDLINK;
  // The entry before the head was consumed a moment ago and nothing was prepared since, so it is still what it was.
  bool linked = (entry(head - 1).flags & kLinks) != 0;
  for (unsigned at = head; linked && at != tail; ++at) {
    io_uring_sqe& sqe = entry(at);
    linked = (sqe.flags & kLinks) != 0;
    const std::uint64_t user_data = sqe.user_data | kCancelledBit;
    io_uring_prep_nop(&sqe);
    sqe.user_data = user_data;
  }
}

void UringRing::Gather() {
  if (!HoldsBack()) return;
  ++enters_;
  (void)io_uring_get_events(&ring_);  // what it refuses now Take asks for again
}

unsigned UringRing::Take(Completion* out, unsigned count) {
  constexpr unsigned kMost = 64;
  io_uring_cqe* entries[kMost];
  if (io_uring_cq_ready(&ring_) == 0 && HasCompletions()) ++enters_;  // made by the peek
  const unsigned taken = io_uring_peek_batch_cqe(&ring_, entries, std::min(count, kMost));
  for (unsigned i = 0; i < taken; ++i) {
    const bool cancelled = (entries[i]->user_data & kCancelledBit) != 0;
    out[i] = {entries[i]->user_data & ~kCancelledBit, cancelled ? -ECANCELED : entries[i]->res};
  }
  io_uring_cq_advance(&ring_, taken);
  return taken;
}

bool UringRing::HasCompletions() const { return io_uring_cq_ready(&ring_) > 0 || HoldsBack(); }

// Task work that has not run, or completions that did not fit: an enter brings both.
bool UringRing::HoldsBack() const { return (IO_URING_READ_ONCE(*ring_.sq.kflags) & (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN)) != 0; }

void UringRing::SetWorkers(unsigned count) {
  unsigned counts[2] = {count, count};
  io_uring_register_iowq_max_workers(&ring_, counts);
}

}  // namespace tierd::io
