#include "client_lib/src/added_memory.h"

#include "client_lib/src/fork_mark.h"

namespace tierd::client {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kWithoutDaemon = 16 << 20;  // until a daemon has said something else
constexpr auto kKinds = static_cast<std::size_t>(Added::kCount);

struct Sums {
  std::atomic<std::uint64_t> total;
  std::atomic<std::uint64_t> inherited;  // part of `total`
  std::atomic<std::uint64_t> peak;
  std::atomic<std::uint64_t> now_of[kKinds];
  std::atomic<std::uint64_t> peak_of[kKinds];
  std::atomic<std::uint64_t> by_budget;
  std::atomic<std::uint64_t> by_kernel;
  std::atomic<std::uint64_t> limit;       // the last that a daemon said; 0: none has
  std::atomic<std::uint32_t> generation;  // whose `inherited` is right
};
constinit Sums sums{};

// The first call in a child of fork: all there is so far was inherited.
void NoteGeneration() {
  const std::uint32_t now = ForkGeneration();
  std::uint32_t seen = sums.generation.load(std::memory_order_relaxed);
  if (seen == now || !sums.generation.compare_exchange_strong(seen, now, std::memory_order_relaxed))
    return;
  sums.inherited.store(sums.total.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void Raise(std::atomic<std::uint64_t>& peak, std::uint64_t value) {
  std::uint64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

std::uint64_t Own() {
  const std::uint64_t total = sums.total.load(std::memory_order_relaxed),
                      inherited = sums.inherited.load(std::memory_order_relaxed);
  return total > inherited ? total - inherited : 0;
}

void Publish(Client& client) {
  if (const Session* const session = client.session(); session != nullptr)
    PublishAdded(*session->page);
}

std::uint64_t Limit(Client& client) {
  if (const Session* const session = client.session(); session != nullptr) {
    if (const std::uint64_t said = session->page->added_limit_bytes.load(std::memory_order_relaxed);
        said != 0)
      sums.limit.store(said, std::memory_order_relaxed);
  }
  const std::uint64_t limit = sums.limit.load(std::memory_order_relaxed);
  return limit != 0 ? limit : kWithoutDaemon;
}

void Add(Added kind, std::uint64_t bytes, std::uint64_t total) {
  const auto index = static_cast<std::size_t>(kind);
  Raise(sums.peak, total);
  Raise(sums.peak_of[index],
        sums.now_of[index].fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

}  // namespace

bool TakeAdded(Client& client, Added kind, std::uint64_t bytes, AddedUse use, AddedBytes& taken) {
  NoteGeneration();
  bytes = (bytes + kPage - 1) / kPage * kPage;
  const std::uint64_t limit = Limit(client),
                      allowed = use == AddedUse::kNeeded ? limit : limit / 4 * 3;
  const std::uint64_t total = sums.total.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (total > allowed) {
    sums.total.fetch_sub(bytes, std::memory_order_relaxed);
    sums.by_budget.fetch_add(1, std::memory_order_relaxed);
    taken = {};
    return false;
  }
  Add(kind, bytes, total);
  taken = {bytes, ForkGeneration(), kind};
  Publish(client);
  return true;
}

void GiveAdded(Client& client, AddedBytes& taken) {
  if (taken.bytes == 0) return;
  NoteGeneration();
  sums.total.fetch_sub(taken.bytes, std::memory_order_relaxed);
  sums.now_of[static_cast<std::size_t>(taken.kind)].fetch_sub(taken.bytes,
                                                              std::memory_order_relaxed);
  if (taken.generation != ForkGeneration())
    sums.inherited.fetch_sub(taken.bytes, std::memory_order_relaxed);
  taken = {};
  Publish(client);
}

void CountAdded(Added kind, std::uint64_t bytes) {
  Add(kind, bytes, sums.total.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

void CountAddedFailure() { sums.by_kernel.fetch_add(1, std::memory_order_relaxed); }

// Threads may store their sums in any order: whoever stores last must have seen the last sum.
void PublishAdded(abi::SessionPage& page) {
  std::uint64_t own = Own();
  for (;;) {
    page.added_bytes.store(own, std::memory_order_seq_cst);
    const std::uint64_t now = Own();
    if (now == own) return;
    own = now;
  }
}

AddedFacts AddedSoFar() {
  AddedFacts facts{};
  facts.peak = sums.peak.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kKinds; ++i)
    facts.peak_of[i] = sums.peak_of[i].load(std::memory_order_relaxed);
  facts.refused_by_budget = sums.by_budget.load(std::memory_order_relaxed);
  facts.refused_by_kernel = sums.by_kernel.load(std::memory_order_relaxed);
  return facts;
}

void ForgetAddedPeaks() {
  sums.peak.store(sums.total.load(std::memory_order_relaxed), std::memory_order_relaxed);
  for (std::size_t i = 0; i < kKinds; ++i)
    sums.peak_of[i].store(sums.now_of[i].load(std::memory_order_relaxed),
                          std::memory_order_relaxed);
  sums.by_budget.store(0, std::memory_order_relaxed);
  sums.by_kernel.store(0, std::memory_order_relaxed);
}

}  // namespace tierd::client
