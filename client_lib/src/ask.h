// Questions to the daemon about files: chunks, metadata, listings. One round trip for one question or for many.
// Any thread, slow path. The leases that protect the answers are the caller's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client_lib/abi/messages.h"
#include "client_lib/src/client.h"
#include "client_lib/src/target.h"

namespace tierd::client {

struct Question {
  const Target* target = nullptr;
  abi::FetchOp op = abi::FetchOp::kChunk;
  std::uint8_t flags = 0;
  std::uint32_t chunk = 0;
  const FileFacts* expected = nullptr;  // with kFetchHandle
  abi::FetchPart part{};                // what is needed of the chunk; 0 bytes: all
};

// Sends the questions and waits for all answers or the deadline. waiters[i].done tells which came; kNone when the conversation went well (single answers
// may be missing), else why there are none. The breaker hears of it.
abi::Fallback Ask(Client& client, Session& session, const Question* questions, Waiter* waiters, std::size_t count, std::int64_t deadline_ns);

// What a reply says about the file: all but the atime (FindAtime).
FileFacts FactsOf(const abi::FetchReply& reply);

}  // namespace tierd::client
