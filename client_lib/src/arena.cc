#include "client_lib/src/arena.h"

#include <sys/mman.h>

#include <cstring>

#include "client_lib/src/shared_mapping.h"

namespace tierd::client {

namespace {
using Call = void (*)();
constinit Call before_retiring = nullptr;
}

void Arena::CallBeforeRetiring(void (*call)()) { before_retiring = call; }

Arena* Arena::Create(const std::uint8_t instance[16]) {
  // Zero pages are a valid empty arena, and only those of its table that are used take memory.
  void* const memory = ::mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* arena = static_cast<Arena*>(memory);
  std::memcpy(arena->instance_, instance, sizeof arena->instance_);
  return arena;
}

bool Arena::IsOf(const std::uint8_t instance[16]) const { return !retired_ && std::memcmp(instance_, instance, sizeof instance_) == 0; }

bool Arena::Knows(std::uint32_t serial) const { return Find({serial, 0, 0}, 0) != nullptr; }

bool Arena::IsHugetlb(std::uint32_t serial) const {
  for (std::uint32_t i = serial % kEntries, tries = 0; tries < kMaxProbe; ++tries, i = (i + 1) % kEntries) {
    if (entries_[i].serial.load(std::memory_order_acquire) == serial) return entries_[i].hugetlb;
  }
  return false;
}

bool Arena::Add(std::uint32_t serial, Mapping mapping) {
  for (std::uint32_t i = serial % kEntries, tries = 0; tries < kMaxProbe; ++tries, i = (i + 1) % kEntries) {
    Entry& entry = entries_[i];
    if (entry.serial.load(std::memory_order_relaxed) != 0) continue;
    entry.data = mapping.data;
    entry.bytes = mapping.bytes;
    entry.hugetlb = mapping.hugetlb;
    entry.serial.store(serial, std::memory_order_release);
    mapped_bytes_.fetch_add(mapping.bytes, std::memory_order_relaxed);
    return true;
  }
  full_.store(true, std::memory_order_relaxed);
  return false;
}

void Arena::GiveBack(Entry& entry) {
  if (entry.given_back) return;
  entry.given_back = true;
  mapped_bytes_.fetch_sub(entry.bytes, std::memory_order_relaxed);
  OverlayWithZeros(entry.data, entry.bytes, false);
}

std::uint32_t Arena::GiveBackGone(const abi::IndexHeader& index) {
  const std::uint32_t count = index.segments_gone.load(std::memory_order_acquire);
  if (count == gone_seen_ || retired_) return count;
  if (before_retiring != nullptr) before_retiring();
  const std::uint32_t oldest = index.oldest_segment.load(std::memory_order_relaxed);
  const std::uint32_t news = count - gone_seen_ < abi::kGoneSegments ? count - gone_seen_ : abi::kGoneSegments;
  for (Entry& entry : entries_) {
    const std::uint32_t serial = entry.serial.load(std::memory_order_relaxed);
    if (serial != 0 && serial < oldest) GiveBack(entry);
  }
  // An entry that the daemon has overwritten since names another segment that has left.
  for (std::uint32_t n = count - news; n != count; ++n) {
    const std::uint32_t serial = index.gone_segments[n % abi::kGoneSegments].load(std::memory_order_acquire);
    for (std::uint32_t i = serial % kEntries, tries = 0; serial != 0 && tries < kMaxProbe; ++tries, i = (i + 1) % kEntries) {
      if (entries_[i].serial.load(std::memory_order_relaxed) == serial) GiveBack(entries_[i]);
    }
  }
  gone_seen_ = count;
  return count;
}

void Arena::Retire() {
  if (before_retiring != nullptr) before_retiring();
  for (Entry& entry : entries_) {
    if (entry.serial.load(std::memory_order_relaxed) != 0) GiveBack(entry);
  }
  mapped_bytes_.store(0, std::memory_order_relaxed);
  retired_ = true;
}

void Arena::Unmap() {
  if (!retired_) return;
  for (Entry& entry : entries_) {
    if (entry.serial.exchange(0, std::memory_order_relaxed) != 0) UnmapShared(entry.data, entry.bytes);
  }
}

void Arena::Destroy(Arena* arena) {
  arena->Unmap();
  ::munmap(arena, sizeof(Arena));
}

}  // namespace tierd::client
