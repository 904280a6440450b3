// Reads the access rings of many sessions as one stream, in the order of the accesses as far as rings can tell it: an entry carries its time in steps of 4 ms
// (LAYOUT 5). Of one ring the order is never changed. Of several, earlier steps go first; within a step each ring's entries are taken to be spread evenly, because
// rings that are read one behind the other would look like readers that run a whole drain ahead of one another, and no plan of a small epoch holds then.
//
// Owner: SessionHub. Loop thread only. Everything in a ring is hostile: a word is bounded, a ring that lies about times disorders its own entries against others'.
// Cost: a cache miss per session, and per entry a few ns, or log2 of the number of rings with entries where there are several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client_lib/abi/layout.h"

namespace tierd::server {

class RingDrain {
 public:
  // What is to be read: nothing of it may go away before the end of the next Run. `tail`: entries that were taken before.
  void Add(std::uint32_t session, const abi::SessionPage& page, std::uint64_t& tail);

  struct Result {
    std::uint64_t lost = 0;  // overwritten before they were read, or never written
    bool more = false;       // `most` were taken and there are others
  };
  // Calls take(session, entry) for each entry that was there at its Add, at most `most`, and forgets the rings. An entry counts as taken when `take` returns.
  template <typename Take>
  Result Run(std::int64_t now_ns, std::size_t most, Take&& take) {
    Begin(now_ns);
    Result result;
    for (std::size_t taken = 0; !heap_.empty() && taken < most; ++taken) {
      Cursor& first = rings_[heap_.front()];
      take(first.session, first.entry);
      Next(first);
    }
    result.more = !heap_.empty();
    result.lost = lost_;
    Forget();
    return result;
  }
  // After a `take` that threw: the rings may be gone by the next Add.
  void Forget();

 private:
  struct Cursor {
    std::uint32_t session;
    std::uint32_t time;       // of its present step: no step is before an earlier one
    const abi::SessionPage* page;
    std::uint64_t* tail;
    std::uint64_t head;
    std::uint64_t entry;      // at *tail
    std::uint64_t key;        // step, and place within the step
    std::uint64_t run_begin;  // positions of its entries of the present step
    std::uint64_t run_end;
    std::uint32_t stride;     // of the keys within it
  };

  void Begin(std::int64_t now_ns);
  bool Load(Cursor& ring);
  void Step(Cursor& ring);
  void Next(Cursor& ring);
  std::uint32_t TimeOf(std::uint64_t entry) const { return (static_cast<std::uint32_t>(entry >> 40) - oldest_) & 0xfffu; }
  bool Later(std::uint32_t a, std::uint32_t b) const { return rings_[a].key != rings_[b].key ? rings_[a].key > rings_[b].key : rings_[a].session > rings_[b].session; }

  std::vector<Cursor> rings_;
  std::vector<std::uint32_t> heap_;  // of rings that have entries, the earliest first
  std::uint32_t oldest_ = 0;         // step that counts as 0
  std::uint64_t lost_ = 0;
};

}  // namespace tierd::server
