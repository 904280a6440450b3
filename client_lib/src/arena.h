// The mapped segments of one daemon instance. Sessions of the same instance share one arena, until it is full, also across a fork: a child finds there what
// the views it inherited point into.
//
// Thread rule: Find by any thread without a lock; Add, Retire under the lock of the session's client.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client_lib/abi/layout.h"

namespace tierd::client {

class Arena {
 public:
  static constexpr std::uint32_t kEntries = 8192;  // 2 TiB of segments of 256 MiB

  struct Mapping {
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    bool hugetlb = false;
  };

  // Null when there is no memory.
  static Arena* Create(const std::uint8_t instance[16]);

  const std::uint8_t* instance() const { return instance_; }
  bool IsOf(const std::uint8_t instance[16]) const;

  // Where the frame of `location` is; null when its segment is not mapped, or `bytes` do not fit into it.
  const std::byte* Find(abi::Location location, std::uint64_t bytes) const {
    for (std::uint32_t i = location.segment % kEntries, tries = 0; tries < kMaxProbe; ++tries, i = (i + 1) % kEntries) {
      const Entry& entry = entries_[i];
      const std::uint32_t serial = entry.serial.load(std::memory_order_acquire);
      if (serial == location.segment) {
        if (bytes > entry.bytes || location.offset > entry.bytes - bytes) return nullptr;
        return entry.data + location.offset;
      }
      if (serial == 0) return nullptr;
    }
    return nullptr;
  }
  bool Knows(std::uint32_t serial) const;
  // Whether its pages are hugetlb's, which cannot be mapped a second time in parts.
  bool IsHugetlb(std::uint32_t serial) const;

  // Adds a mapping; false when there is no room (too many segments seen in this instance's life). It is full() from then on: a new session gets another arena.
  bool Add(std::uint32_t serial, Mapping mapping);
  bool full() const { return full_.load(std::memory_order_relaxed); }
  std::uint64_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_relaxed); }
  // Who keeps further mappings of the segments is told before they are given back. Once, before the first arena; `call` takes no lock of the client's.
  static void CallBeforeRetiring(void (*call)());
  // Gives back the segments that the daemon says have left (IndexHeader::segments_gone): no lease
  // covers a frame of them, so that no reader looks there. Returns the count up to which it did.
  std::uint32_t GiveBackGone(const abi::IndexHeader& index);
  // Nobody holds a lease any more: gives all segments back. Addresses stay reserved, so that a late reader faults on nothing.
  void Retire();
  // Of a retired one that no reader can be on its way to: gives the addresses back, too.
  void Unmap();
  // The same, and the arena itself.
  static void Destroy(Arena* arena);

  std::uint32_t sessions = 0;  // open ones; guarded by the lock of the client
  Arena* next = nullptr;       // chain of the client

 private:
  static constexpr std::uint32_t kMaxProbe = 64;
  struct Entry {
    std::atomic<std::uint32_t> serial;  // 0: free; stored last
    bool hugetlb;
    bool given_back;             // overlaid; the address stays taken
    const std::byte* data;
    std::uint64_t bytes;
  };
  void GiveBack(Entry& entry);

  std::uint8_t instance_[16];
  std::atomic<std::uint64_t> mapped_bytes_;
  bool retired_;
  std::uint32_t gone_seen_;
  std::atomic<bool> full_;
  Entry entries_[kEntries];
};

}  // namespace tierd::client
