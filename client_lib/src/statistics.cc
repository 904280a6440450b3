// tier_stats.
#include <errno.h>

#include <cstring>

#include "client_lib/src/clock.h"
#include "client_lib/src/process.h"
#include "tier/tier.h"

using namespace tierd::client;
namespace abi = tierd::abi;

static_assert(TIER_ORIGINS == abi::kTiers && TIER_FALLBACKS >= abi::kFallbacks);

int tier_stats(tier_client* client, tier_statistics* statistics) noexcept {
  if (statistics == nullptr || statistics->size < sizeof statistics->size) return -EINVAL;
  const KeepErrno keep;
  const SlowPath slow;
  if (!slow.entered()) return -EDEADLK;
  Client& c = ClientOf(client);
  if (!SameProcess()) NoticeFork();
  abi::SessionCounters sum{};
  c.AddUp(sum);
  tier_statistics s{};
  s.size = statistics->size;
  for (std::size_t i = 0; i < abi::kTiers; ++i) {
    s.reads[i] = sum.reads[i].load(std::memory_order_relaxed);
    s.bytes[i] = sum.bytes[i].load(std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < abi::kFallbacks; ++i) s.fallback[i] = sum.fallback[i].load(std::memory_order_relaxed);
  s.sessions = c.sessions_opened();
  if (const Session* session = c.session(); session != nullptr) {
    s.leases = CountLeases(*session);
    s.frozen_leases = session->page->frozen_leases.load(std::memory_order_relaxed);
    s.leased_bytes = session->page->leased_bytes.load(std::memory_order_relaxed);
    s.mapped_bytes = session->arena->mapped_bytes();
    s.connected = session->channel.dead() ? 0 : 1;
    s.hung = s.connected != 0 && session->Hung(CoarseNs()) ? 1 : 0;
    s.page_kind = session->page_kind;
  }
  const std::size_t bytes = statistics->size < sizeof s ? statistics->size : sizeof s;
  std::memcpy(static_cast<void*>(statistics), &s, bytes);
  return 0;
}

const char* tier_fallback_name(uint32_t reason) noexcept { return abi::FallbackName(static_cast<abi::Fallback>(reason < 256 ? reason : 255)); }
