// The one implementation of SourceReader. Private to this folder; see source_reader.h for the contract.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "tierd/base/unique_fd.h"
#include "tierd/source/aimd_window.h"
#include "tierd/source/engine_trial.h"
#include "tierd/source/source_reader.h"
#include "tierd/source/stamp_clock.h"
#include "tierd/source/token_bucket.h"

namespace tierd::source {

// One request from Submit to its last callback.
struct Operation {
  RequestId id{};
  bool is_stat = false;
  bool opens = false;       // a stat that opens the file
  ReadRequest read;         // of a stat: path, priority and deadline only
  StatReplyCallback stat_done;

  bool in_flight = false;
  bool probe = false;       // let through while the source hangs
  bool hung = false;        // in flight for too long: takes no window slot
  bool abandoned = false;   // `done` has run with buffer_held
  bool reopened = false;    // after ESTALE
  bool plain = false;       // O_DIRECT was refused for this file
  bool only_weak = true;    // every mismatch so far left size and mtime alone
  std::uint32_t mismatches = 0;
  std::uint32_t shortages = 0;  // attempts for which we had no descriptor or memory
  io::EngineKind engine = io::EngineKind::kThreads;
  std::int64_t sent_ns = 0;       // PreciseNs
  std::int64_t sent_real_ns = 0;  // RealtimeNs
  std::int64_t charged = 0;       // bytes taken from the budget
  // In-flight operations that do not hang, oldest first.
  Operation* older = nullptr;
  Operation* newer = nullptr;
};

class FlightList {
 public:
  void Append(Operation* op);
  void Remove(Operation* op);
  Operation* oldest() const { return oldest_; }

 private:
  Operation* oldest_ = nullptr;
  Operation* newest_ = nullptr;
};

class SourceReaderImpl final : public SourceReader {
 public:
  SourceReaderImpl(std::shared_ptr<const Source> source, EngineFactory factory, const Clock& clock,
                   const SourceOptions& options);
  Status Start();

  RequestId Read(ReadRequest request) override;
  RequestId Stat(StatQuery query) override;
  void Promote(RequestId id, Priority priority, std::int64_t deadline_ns) override;
  bool Cancel(RequestId id) override;
  void Flush() override;
  std::size_t Poll(std::size_t budget) override;
  void Tick(std::int64_t now_ns) override;
  std::int64_t next_tick_ns() const override;
  int event_fd() const override { return epoll_.get(); }
  std::size_t Stop(int timeout_ms) override;
  void SetBudgets(std::uint64_t bytes_per_second, std::uint64_t requests_per_second) override;
  std::shared_ptr<RequestBudget> request_budget() const override { return request_budget_; }
  bool SameVersion(const io::FileStat& a, const io::FileStat& b) const override;
  bool IsYoung(const io::FileStat& stat, std::int64_t stat_sent_ns) const override;
  void NoteChange(std::int64_t seen_ns, const io::FileStat& now_is) override;
  SourceState state() const override;
  SourceCounters counters() const override;
  std::uint64_t bytes_read() const override { return counters_.bytes_read; }
  std::string Report() const override;

 private:
  using OperationMap = std::unordered_map<std::uint64_t, std::unique_ptr<Operation>>;
  // Ended operations whose callback waits for Poll().
  struct Finished {
    std::unique_ptr<Operation> op;
    ReadResult result;
  };
  enum class Verdict { kFinal, kAgain };
  // kProbe: sent to see whether a hanging source is back.
  enum class Admission { kWait, kSend, kProbe };

  // Queue (source_reader.cc).
  RequestId Enqueue(std::unique_ptr<Operation> op);
  Operation* Front(std::size_t priority);
  Admission Admit(std::size_t priority, std::int64_t now_ns);
  bool ProbesOnly(bool low, std::int64_t now_ns) const;
  bool ProbeDue(std::int64_t now_ns) const;
  std::int64_t NextSendNs() const;
  void StartProbe(Operation& op, std::int64_t now_ns);
  void Dispatch();
  bool Send(Operation& op);  // false: `acquire` had no memory, and it has ended
  void SubmitRead(Operation& op, io::IoEngine& engine);
  void SubmitStat(Operation& op, io::IoEngine& engine);
  void SubmitOpen(Operation& op, io::IoEngine& engine);
  bool UseDirect(const Operation& op) const;
  void NoteDirectRefused(Operation& op);
  bool DirectRefused(const std::string& path) const;
  void LeaveQueue(Operation& op);
  std::size_t Waiting() const { return queued_[0] + queued_[1] + queued_[2]; }
  bool Refusing() const { return hung_ >= options_.hung_cap; }
  void RefuseDemand();

  // Ends (source_reader_complete.cc).
  void OnRead(std::uint64_t id, const io::FileReadResult& r);
  void OnStat(std::uint64_t id, const io::StatResult& r);
  void OnOpened(std::uint64_t id, const io::FileReadResult& r);
  void Land(Operation& op, std::size_t bytes, bool good);
  Verdict Judge(Operation& op, const io::FileReadResult& r, ReadResult* result);
  bool WaitAgain(Operation& op, int error);
  Verdict JudgeVersion(Operation& op, const io::FileReadResult& r, ReadResult* result);
  void Declare(Operation& op);
  void Expire(Operation& op);
  std::unique_ptr<Operation> Extract(Operation& op);
  void End(Operation& op, ReadResult result);
  void EndLater(Operation& op, ReadError error);
  std::size_t Deliver(std::size_t budget);
  static void Call(const Operation& op, const ReadResult& result);

  // Engines.
  Status MakeEngine(io::EngineKind kind);
  const char* EngineInUse() const;
  io::IoEngine& EngineFor(io::EngineKind kind) { return *engines_[static_cast<std::size_t>(kind)]; }
  void MaybeStartTrial();
  void RetireIdleEngine();
  void Signal();

  // Constant after construction.
  std::shared_ptr<const Source> source_;  // shared with walker and resolver threads
  EngineFactory factory_;
  const Clock& clock_;
  SourceOptions options_;
  std::shared_ptr<RequestBudget> request_budget_;  // shared with walkers and resolver, and their threads
  UniqueFd epoll_;
  UniqueFd wake_;

  // Owned by the loop thread.
  OperationMap operations_;
  std::array<std::deque<std::uint64_t>, kPriorities> queues_;  // ids; those no longer queued there are skipped
  std::array<std::uint64_t, kPriorities> queued_{};
  std::set<std::pair<std::int64_t, std::uint64_t>> deadlines_;
  FlightList flight_;
  std::deque<Finished> finished_;
  AimdWindow window_;
  TokenBucket byte_budget_;
  std::int64_t paused_until_ns_ = 0;  // after a shortage of ours
  std::size_t short_of_memory_path_ = 0;  // hash; the last for which there was no memory
  std::int64_t send_at_ns_ = 0;       // when that and the request budget let what waits go; 0: they do not hold it back
  StampClock stamps_;
  EngineTrial trial_;
  std::uint64_t last_id_ = 0;
  std::uint32_t in_flight_ = 0;  // without the hung
  std::uint32_t hung_ = 0;
  std::uint32_t probes_ = 0;     // of both
  std::int64_t last_probe_ns_ = 0;
  std::int64_t probe_wait_ns_ = 0;
  std::int64_t last_completion_ns_ = 0;
  std::uint64_t weak_files_ = 0;
  bool weak_source_ = false;
  std::array<std::size_t, 3> refused_files_{};  // hashes of the paths for which it did not
  std::uint8_t refused_count_ = 0;
  bool direct_refused_ = false;  // the source does not take O_DIRECT
  bool signalled_ = false;
  bool polling_ = false;
  bool stopped_ = false;
  SourceCounters counters_;
  // Last, so that they go first: their completions refer to this object.
  std::array<std::unique_ptr<io::IoEngine>, 2> engines_;
};

}  // namespace tierd::source
