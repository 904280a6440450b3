// Who waits for a fill: a client's request, or the daemon itself (prefetch, warm-up, read-ahead).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "client_lib/abi/messages.h"
#include "tierd/engine/ids.h"
#include "tierd/engine/requests.h"
#include "tierd/io/io_engine.h"

namespace tierd::engine {

enum class BringOutcome : std::uint8_t {
  kCached,     // the chunk is in a tier
  kNoRoom,     // neither tier takes it
  kFailed,     // the source, or something on the way, refused
};

// What became of work that the daemon asked for itself.
struct BringResult {
  BringOutcome outcome = BringOutcome::kCached;
  FileId file = kNoFile;
  abi::Fallback reason = abi::Fallback::kNone;  // with kFailed and kNoRoom, when it was not the source that refused
  int sys_errno = 0;                            // with kFailed: what the source said
};
using BringCallback = std::function<void(const BringResult&)>;

struct Waiter {
  SessionId session = kNoSession;  // kNoSession: `done` is called instead of a reply
  std::uint64_t request_id = 0;
  abi::FetchOp op = abi::FetchOp::kChunk;
  std::uint8_t flags = 0;
  bool ssd_only = false;           // prefetch to the SSD tier alone
  bool evict = true;               // others may leave for it
  std::uint8_t attempts = 0;       // rounds through Serve; bounded
  std::uint32_t chunk = 0;
  std::int64_t deadline_ns = 0;    // when a client is told to read the source itself; 0 for the daemon's own
  io::FileStat expected;           // with kFetchHandle
  BringCallback done;

  bool is_client() const { return session != kNoSession; }
};
using Waiters = std::vector<Waiter>;

}  // namespace tierd::engine
