// Who waits for a fill: a client's request, or the daemon itself (prefetch, warm-up, read-ahead). Each is answered exactly once, whatever becomes of the work that
// it waits for: a waiter that is dropped without an answer (memory ran out half-way, F16) goes to the lost ones, and the fetcher answers it from there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/abi/messages.h"
#include "tierd/engine/catalogue/ids.h"
#include "tierd/engine/fetch/requests.h"
#include "tierd/io/io_engine.h"
#include "tierd/ssd/record.h"

namespace tierd::engine {

enum class BringOutcome : std::uint8_t {
  kCached,     // the chunk is in a tier
  kNoRoom,     // neither tier takes it, or the SSD does not, of which alone it was asked
  kFailed,     // the source, or something on the way, refused
};

// What became of work that the daemon asked for itself.
struct BringResult {
  BringOutcome outcome = BringOutcome::kCached;
  FileId file = kNoFile;
  abi::Fallback reason = abi::Fallback::kNone;  // with kFailed, when it was not the source that refused; with kNoRoom: kNoFrame when there may be room in a moment
  int sys_errno = 0;                            // with kFailed: what the source said
};
using BringCallback = std::function<void(const BringResult&)>;

class LostWaiters;

struct Waiting {
  SessionId session = kNoSession;  // kNoSession: `done` is called instead of a reply
  bool by_link = false;            // a client's that holds the lease of another name, or may: when what it asked for is there, it is told to look up again
  std::uint64_t request_id = 0;
  abi::FetchOp op = abi::FetchOp::kChunk;
  std::uint8_t flags = 0;
  bool ssd_only = false;           // prefetch to the SSD tier alone
  bool evict = true;               // others may leave for it
  std::uint8_t attempts = 0;       // rounds through Serve; bounded
  std::uint32_t chunk = 0;
  ssd::PayloadRange part;          // of the chunk, that is needed now; 0 bytes: all of it
  std::int64_t begun_ns = 0;       // PreciseNs; of clients
  std::int64_t deadline_ns = 0;    // when a client is told to read the source itself; 0 for the daemon's own
  io::FileStat expected;           // with kFetchHandle
  BringCallback done;

  bool answered = false;
  Waiting* next = nullptr;         // among the lost
  std::shared_ptr<LostWaiters> lost;

  // A client that takes the bytes as they lie, under its lease.
  bool is_client() const { return session != kNoSession && !by_link; }
  // Some client waits: it is answered by its deadline. The daemon itself waits as long as it takes.
  bool is_awaited() const { return session != kNoSession; }
};

// Loop thread only. Shared by the fetcher and the waiters, which may lie in callbacks that outlive it.
class LostWaiters {
 public:
  LostWaiters() = default;
  ~LostWaiters() { Close(); }
  LostWaiters(const LostWaiters&) = delete;
  LostWaiters& operator=(const LostWaiters&) = delete;

  // Nobody is there any more to answer: waiters are just dropped.
  void Close() {
    closed_ = true;
    while (Waiting* const one = Take()) delete one;
  }
  bool empty() const { return first_ == nullptr; }
  void Add(Waiting* one) noexcept {
    if (closed_ || one->answered) {
      delete one;
      return;
    }
    one->next = std::exchange(first_, one);
  }
  // Null: none is left.
  Waiting* Take() { return first_ == nullptr ? nullptr : std::exchange(first_, first_->next); }

 private:
  Waiting* first_ = nullptr;
  bool closed_ = false;
};

class Waiter {
 public:
  explicit Waiter(const std::shared_ptr<LostWaiters>& lost) : waiting_(new Waiting) { waiting_->lost = lost; }
  explicit Waiter(Waiting* waiting) : waiting_(waiting) {}

  Waiting* operator->() const { return waiting_.get(); }

 private:
  struct Drop {
    void operator()(Waiting* waiting) const noexcept {
      const std::shared_ptr<LostWaiters> lost = waiting->lost;
      lost->Add(waiting);
    }
  };
  std::unique_ptr<Waiting, Drop> waiting_;
};
using Waiters = std::vector<Waiter>;

}  // namespace tierd::engine
