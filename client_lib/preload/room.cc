#include "client_lib/preload/room.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstdlib>

#include "client_lib/preload/raw.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace tierd::preload {
namespace {

constexpr unsigned kRooms = 64;
client::PathText rooms[kRooms];
constinit std::atomic<std::uint64_t> taken{0};
__thread std::uint64_t taken_here __attribute__((tls_model("initial-exec"))) = 0;

constexpr std::uintptr_t kPage = 4096;
constexpr std::uintptr_t kStackWanted = 48 << 10;
constexpr std::uintptr_t kMainStack = 1 << 20;  // of the main thread, below its end: grows as it is used

constinit std::uintptr_t main_stack_end = 0;
// [first, second) of this thread's stack are known to be there.
__thread std::uintptr_t stack_begin __attribute__((tls_model("initial-exec"))) = 0;
__thread std::uintptr_t stack_end __attribute__((tls_model("initial-exec"))) = 0;

}  // namespace

client::PathText* Room::Take() {
  std::uint64_t now = taken.load(std::memory_order_relaxed);
  for (;;) {
    if (now == ~std::uint64_t{0}) return text_ = static_cast<client::PathText*>(std::malloc(sizeof *text_));  // the core's heap, as good in a handler
    const int index = __builtin_ctzll(~now);
    const std::uint64_t bit = std::uint64_t{1} << index;
    if (!taken.compare_exchange_weak(now, now | bit, std::memory_order_acq_rel)) continue;
    taken_here |= bit;
    return text_ = &rooms[index];
  }
}

void Room::Release() {
  if (text_ < rooms || text_ >= rooms + kRooms) return std::free(text_);
  const std::uint64_t bit = std::uint64_t{1} << (text_ - rooms);
  taken_here &= ~bit;
  taken.fetch_and(~bit, std::memory_order_acq_rel);
}

void ForgetRooms() { taken.store(taken_here, std::memory_order_relaxed); }

void NoteMainStack(char** argv) { main_stack_end = reinterpret_cast<std::uintptr_t>(argv); }

bool StackIsSmall() {
  stack_t stack{};
  if (raw::Call(SYS_sigaltstack, 0, raw::Address(&stack)) == 0 && (stack.ss_flags & SS_ONSTACK) != 0) return stack.ss_size < kStackWanted + kStackWanted / 2;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (here <= main_stack_end && main_stack_end - here < kMainStack) return false;
  if (here < stack_end && here - kStackWanted >= stack_begin) return false;
  const std::uintptr_t begin = (here - kStackWanted) / kPage * kPage;
  const std::uintptr_t end = here / kPage * kPage;
  // Fails at the guard page, and where nothing is mapped. Kernels before 5.14 do not know the question.
  const long error = raw::Call(SYS_madvise, static_cast<long>(begin), static_cast<long>(end - begin), MADV_POPULATE_READ);
  if (error == -EINVAL) return false;
  if (error != 0) return true;
  stack_begin = begin;
  stack_end = end;
  return false;
}

}  // namespace tierd::preload
