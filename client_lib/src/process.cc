// Clients as the C ABI hands them out.
#include "client_lib/src/process.h"

#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <new>

#include "tier/tier.h"

namespace tierd::client {

constinit std::atomic<tier_client*> default_client{nullptr};

namespace {

alignas(64) constinit unsigned char default_memory[sizeof(tier_client)] = {};
constinit std::atomic<int> default_made{0};

void MakeDefault() {
  const KeepErrno keep;
  auto* const made = new (default_memory) tier_client;
  Settings settings;
  if (!ReadSettings(nullptr, settings)) settings.disabled = true;
  made->client.Init(settings);
  default_client.store(made, std::memory_order_release);
}

// Memory for a client: one that was disconnected, or new pages. Never given back, since a fork may be looking at it.
tier_client* TakeMemory() {
  for (Client* known = FirstClient(); known != nullptr; known = known->next_client) {
    bool free = false;
    auto* const owner = reinterpret_cast<tier_client*>(known);
    if (owner != default_client.load(std::memory_order_acquire) && known->in_use.compare_exchange_strong(free, true)) return owner;
  }
  void* const memory = ::mmap(nullptr, sizeof(tier_client), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
#ifdef __SANITIZE_ADDRESS__
  __lsan_register_root_region(memory, sizeof(tier_client));  // what it holds is held, not lost
#endif
  return new (memory) tier_client;
}

}  // namespace

Client& MakeDefaultClient() {
  CallOnce(default_made, &MakeDefault);
  return default_client.load(std::memory_order_acquire)->client;
}

}  // namespace tierd::client

using namespace tierd::client;

int tier_connect(const tier_options* options, tier_client** client) noexcept {
  const KeepErrno keep;
  if (client == nullptr) return -EINVAL;
  *client = nullptr;
  const SlowPath slow;
  if (!slow.entered()) return -EDEADLK;
  Settings settings;
  if (!ReadSettings(options, settings)) return -EINVAL;
  tier_client* const made = TakeMemory();
  if (made == nullptr) return -ENOMEM;
  made->client.Init(settings);
  if ((settings.flags & TIER_REQUIRE_DAEMON) != 0) {
    if (const int error = made->client.ConnectNow(); error != 0) {
      made->client.Shutdown();
      return error == -ENOENT || error == -ENOTDIR ? -ECONNREFUSED : error;
    }
  }
  *client = made;
  return 0;
}

void tier_disconnect(tier_client* client) noexcept {
  const KeepErrno keep;
  if (client == nullptr || client == tier_default()) return;
  const SlowPath slow;
  client->client.Shutdown();
}

tier_client* tier_default() noexcept { return reinterpret_cast<tier_client*>(&DefaultClient()); }

const char* tier_version() noexcept { return TIERD_VERSION; }

uint32_t tier_abi_version() noexcept { return TIER_ABI_VERSION; }
