// What every entry point of the C ABI begins with.
#pragma once

#include <errno.h>

#include "client_lib/src/client.h"
#include "client_lib/src/thread_state.h"

namespace tierd::client {

// Keeps errno as the caller had it (tier.h, convention 2).
class KeepErrno {
 public:
  KeepErrno() : saved_(Errno()) {}
  ~KeepErrno() { Errno() = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int saved_;
};

// The process-wide client; made by the first caller.
Client& MakeDefaultClient();
extern std::atomic<tier_client*> default_client;  // null until then
inline Client& DefaultClient() {
  tier_client* const made = default_client.load(std::memory_order_acquire);
  if (made == nullptr) [[unlikely]] return MakeDefaultClient();
  return made->client;
}

inline Client& ClientOf(tier_client* client) { return client != nullptr ? client->client : DefaultClient(); }

}  // namespace tierd::client
