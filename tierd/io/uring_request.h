// One request of the io_uring engine as a state machine: which entries come next, and what their results mean.
//
// Loop thread only. It prepares entries in a ring it is given and takes results; it neither submits nor polls nor completes, and
// never blocks. What the kernel writes to (other than callers' buffers) lies in StatxSlots, which can be left behind.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tierd/io/aligned_buffer.h"
#include "tierd/io/file_access.h"
#include "tierd/io/io_engine.h"
#include "tierd/io/uring_ring.h"

namespace tierd::io {

// Targets of statx: one pair for each file request in the kernel.
struct StatxPair {
  struct statx before;
  struct statx after;
};

class StatxSlots {
 public:
  // False: no memory.
  bool Allocate(std::size_t count);
  StatxPair* Take();
  void Give(StatxPair* slot) { free_.push_back(slot); }
  // Leaves the memory to the process: abandoned requests may still be answered.
  void Abandon() { memory_.Abandon(); }

 private:
  AlignedBuffer memory_;
  std::vector<StatxPair*> free_;
};

// What all requests of an engine share.
struct UringContext {
  EngineFaults* faults = nullptr;
  bool statx_tells_mounts = true;
  // Learned: RWF_DONTCACHE is taken by this kernel and file system.
  bool dontcache = true;
  // ... and whether a read has shown it. Until then files are read step by step: a chain that fails has to open its file twice.
  bool dontcache_known = false;
  // The engine is being destroyed: opened files are closed, nothing else is begun.
  bool stopping = false;
};

struct alignas(64) UringRequest {
  enum class Kind : std::uint8_t { kFileRead, kStat, kReadv, kWritev };
  // How far a file read is; a stat opens its place where needed, and is then at kStatBefore. kChain stands for all steps after the open, or, of a request with a rest, for those up to the second
  // stat: the descriptor stays open for what the first one may show. kAdvise closes too. The others are taken one at a time.
  enum class Stage : std::uint8_t { kOpen, kChain, kStatBefore, kRead, kStatAfter, kAdvise, kClose, kEnded };

  // Back to the beginning, with everything but the callbacks and the parameters reset.
  void Start(Kind new_kind);
  bool IsTransfer() const { return kind == Kind::kReadv || kind == Kind::kWritev; }

  // Entries that Prepare will use at most now.
  unsigned EntriesNeeded() const { return stage == Stage::kChain ? kChainEntries : stage == Stage::kAdvise ? 2 : 1; }
  // Fills that many entries of `ring`, which has room for them.
  void Prepare(UringRing& ring, UringContext& context);
  // Takes the result of one entry; true when all that were prepared are answered, so that Advance is due.
  bool TakeResult(Step step, long result, UringContext& context);
  // Decides from the results what comes next; true if the request has ended, else Prepare is due.
  bool Advance(UringContext& context);
  // Of one that has ended: the kernel gave it up. It does that where a step may block and there is no io-wq worker for it, nor could one be started.
  bool WasCancelled() const;

  static UringRequest* Of(std::uint64_t user_data) { return reinterpret_cast<UringRequest*>(user_data & ~std::uint64_t{63}); }
  static Step StepOf(std::uint64_t user_data) { return static_cast<Step>((user_data & 63) >> 1); }

  static constexpr unsigned kChainEntries = 5;
  static constexpr std::size_t kSteps = 9;

  // Parameters.
  Kind kind = Kind::kReadv;
  FileReadRequest file;
  StatRequest stat;
  int fd = -1;  // transfers: the caller's; file reads and stats: ours while open
  std::array<iovec, IoEngine::kMaxIov> iov{};
  std::vector<iovec> pieces;  // kMaxPieces of them for a file read with further ones: what is left of those, while the kernel reads
  std::uint64_t offset = 0;

  // Progress.
  Stage stage = Stage::kOpen;
  bool direct = false;     // the descriptor is open with O_DIRECT
  bool dontcache = false;  // the last read was made with RWF_DONTCACHE
  bool careful = false;    // step by step from now on
  bool advised = false;    // the kernel reads nothing ahead
  unsigned repeats = 0;    // of transient outcomes
  unsigned unanswered = 0;
  int error = 0;           // why a file read goes to its kClose
  std::span<iovec> rest;   // of iov: not transferred yet
  std::size_t bytes = 0;
  std::size_t wanted = 0;  // of a file, as its first stat has it
  std::array<long, kSteps> results{};
  StepCounts counts;
  open_how how{};
  StatxPair* slot = nullptr;

  // Outcome.
  FileReadResult file_result;
  StatResult stat_result;
  IoResult io_result;

  // The engine's.
  FileReadCallback file_done;
  StatCallback stat_done;
  IoCallback io_done;
  std::int64_t started_ns = 0;  // 0: not in the kernel
  bool compensated = false;
  UringRequest* next = nullptr;

 private:
  void PrepareStep(UringRing& ring, UringContext& context, Step step, bool linked);
  void PrepareOpen(io_uring_sqe* sqe);
  void PrepareRead(io_uring_sqe* sqe, UringContext& context);
  void PrepareTransfer(io_uring_sqe* sqe);
  long ResultOf(Step step) const { return results[static_cast<std::size_t>(step)]; }
  bool Repeat(long result);
  bool Close(int why);
  bool TookAll(long n);
  bool MayBeAPiece(const UringContext& context) const;
  void AdviseReadAhead(bool none);
  bool EndRead();
  bool Reopen();
  bool Go(Stage to);

  bool AdvanceTransfer();
  bool OpensPlace(const UringContext& context) const { return stage == Stage::kOpen && OpensPlaceForStat(stat, context.statx_tells_mounts); }
  bool AdvanceStat(const UringContext& context);
  bool AdvancePlace(const UringContext& context);
  bool AdvanceOpen(UringContext& context);
  bool AdvanceChain(UringContext& context);
  bool AdvanceStatBefore();
  bool AdvanceRead(UringContext& context);
  bool AdvanceStatAfter();
};

}  // namespace tierd::io
