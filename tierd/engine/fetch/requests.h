// What the server asks of the engine and how answers go back. Paths are canonical and relative to their source (the server checks the form).
#pragma once

#include <cstdint>
#include <string>

#include "client_lib/abi/messages.h"

namespace tierd::engine {

enum class SessionId : std::uint32_t {};
inline constexpr SessionId kNoSession{0};  // prefetch, warm-up: nobody waits

struct FetchRequest {
  SessionId session = kNoSession;
  abi::FetchEntry entry{};
  std::string path;
  abi::FetchPart part{};  // 0 bytes: all of the chunk
};

// Receives the answers, on the loop thread, inside any engine call or completion. A session that has ended in the meantime is the sink's
// business: it drops them.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void OnFetchReply(SessionId session, const abi::FetchReply& reply) = 0;
};

}  // namespace tierd::engine
