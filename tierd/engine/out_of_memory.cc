#include "tierd/engine/out_of_memory.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace tierd::engine {
namespace {

// Small enough to be parts of the heap, which serves what is asked for next, and not mappings of their own.
constexpr std::size_t kPieceBytes = 64 << 10;
constexpr std::size_t kPieces = 16;
constexpr int kDefectsTold = 100;

// Of the process, as the new-handler is, which knows nothing else.
std::array<std::atomic<void*>, kPieces> reserve{};

void GiveReserveUp() {
  bool gave = false;
  for (std::atomic<void*>& piece : reserve) {
    void* const memory = piece.exchange(nullptr);
    gave |= memory != nullptr;
    std::free(memory);
  }
  if (!gave) throw std::bad_alloc();
}

}  // namespace

void TellOfDefect(const std::exception& thrown) noexcept {
  static std::atomic<int> told = 0;
  if (told.fetch_add(1, std::memory_order_relaxed) < kDefectsTold) std::fprintf(stderr, "tierd: a defect: %s; what threw it is given up\n", thrown.what());
}

bool KeepMemoryReserve() {
  bool whole = true;
  for (std::atomic<void*>& piece : reserve) {
    if (piece.load() != nullptr) continue;
    whole = false;
    if (void* const memory = std::malloc(kPieceBytes); memory != nullptr) piece.store(memory);
  }
  std::set_new_handler(&GiveReserveUp);
  return whole;
}

}  // namespace tierd::engine
