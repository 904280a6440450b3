#include "client_lib/src/fork_mark.h"

#include <sys/mman.h>
#include <unistd.h>

namespace tierd::client {
namespace fork_mark_detail {

constinit std::atomic<std::uint32_t> never_wiped{kSet};
constinit std::atomic<std::atomic<std::uint32_t>*> mark{&never_wiped};
constinit std::atomic<std::uint32_t> generation{0};
constinit std::atomic<std::uint32_t> forks{0};

}  // namespace fork_mark_detail

using namespace fork_mark_detail;

constexpr std::uint32_t kTakingOver = 2;

void InitForkMark() {
  if (mark.load(std::memory_order_acquire) != &never_wiped) return;
  const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  auto* word = static_cast<std::atomic<std::uint32_t>*>(page);
  word->store(kSet, std::memory_order_relaxed);
  std::atomic<std::uint32_t>* expected = &never_wiped;
  if (::madvise(page, bytes, MADV_WIPEONFORK) != 0 || !mark.compare_exchange_strong(expected, word, std::memory_order_acq_rel)) ::munmap(page, bytes);
}

void ForkBegins() { forks.fetch_add(kBegun + kUnderWay, std::memory_order_seq_cst); }
void ForkIsOver() { forks.fetch_sub(kUnderWay, std::memory_order_seq_cst); }

bool BeginTakeOver() {
  std::uint32_t wiped = 0;
  return mark.load(std::memory_order_acquire)->compare_exchange_strong(wiped, kTakingOver, std::memory_order_acq_rel);
}

void EndTakeOver() {
  forks.fetch_and(~kUnderWayMask, std::memory_order_relaxed);  // they were the parent's
  generation.fetch_add(1, std::memory_order_relaxed);
  mark.load(std::memory_order_acquire)->store(kSet, std::memory_order_release);
}

}  // namespace tierd::client
