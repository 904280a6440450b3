// The multi-epoch future of a dataset, and who of the residents is used last: the data structure of `belady`. A slot is one future
// access; slots are numbered in the order of use.
//
// Memory: 4 bytes per future access (and 3 bits per 16 of them, to find marks), 16 bytes per object. The slot of an object's next use and that of its
// last known one hold the object's id, those between the slot of the following use; so the id of any slot is found by following uses. The object
// holds the slots of its next use and of the one after that, so that a read touches two lines of memory: its object, and the slot that becomes
// the next. Residents are marked in the slot of their next use, per tier, and nowhere else: the resident used last is the last marked slot, exactly, and it leaves
// without a look at its object.
//
// Accesses may come out of order: an object's use is consumed at its own next slot, if that is less than `window` slots ahead of the
// first one not consumed; an access further off was not planned and changes nothing. Slots that are passed by a window are given up. So are those
// before the place further on where most of the latest uses lie: nobody told of the ones before, or they were too fast to be followed. These go in slices,
// a few with each access.
//
// Owner: one policy instance. One thread at a time. Every call is O(1) amortised but where it says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policies/paged_array.h"
#include "policies/prefetch.h"
#include "policies/tierd_policy.h"

namespace tierd::policies {

class Timeline {
 public:
  static constexpr std::uint64_t kNever = UINT64_MAX;     // no use is known
  static constexpr std::uint32_t kMaxId = (1u << 29) - 3;
  static constexpr std::uint64_t kMaxSlots = 1u << 28;    // known at a time

  Timeline() : pages_(kPages) {}

  // Objects. Ids that are not known are ignored by everything else.
  void Know(std::uint32_t id, std::uint64_t bytes);
  void Forget(std::uint32_t id);
  bool IsKnown(std::uint32_t id) const { return id < objects_.Limit() && objects_[id].known; }
  std::uint32_t BytesOf(std::uint32_t id) const { return smallest_ == largest_ ? largest_ : objects_[id].bytes; }
  bool alike() const { return smallest_ >= largest_; }  // all that were ever known have one size
  void SetResident(std::uint32_t tier, std::uint32_t id, bool resident);
  bool IsResident(std::uint32_t tier, std::uint32_t id) const {
    const Object& object = objects_[id];
    return ((object.planned ? MarksOf(Word(Whole(object.next))) : object.idle) >> tier & 1) != 0;
  }
  // Cache lines only, in two steps: the object's own, and when those have come, the slot of the use after its next.
  void PrefetchObject(std::uint32_t id) const {
    if (id < objects_.Limit()) PrefetchLine(&objects_[id]);
  }
  void PrefetchUse(std::uint32_t id) const {
    if (!IsKnown(id) || !objects_[id].more) return;
    const std::uint32_t low = objects_[id].following;
    PrefetchLine(&pages_[Whole(low) / kPageSlots % kPages]->words[low % kPageSlots]);
  }

  // More of the future, in the order of use. What does not fit into kMaxSlots is not taken.
  void Append(std::span<const std::uint32_t> ids);
  // Forgets the whole future. O(objects).
  void Withdraw();
  void SetWindow(std::uint32_t window) { window_ = window; }
  // The object was used. False: that was not planned.
  bool Consume(std::uint32_t id);

  // First slot not consumed (or found to be where the readers are), and the one behind the last.
  std::uint64_t now() const { return floor_ < found_at_ ? found_at_ : floor_; }
  std::uint64_t end() const { return end_; }
  bool empty() const { return floor_ == end_; }
  std::uint64_t missed() const { return missed_; }
  // How often the readers were found further on; the uses before that place are given up by then, so that many objects have another next one.
  std::uint64_t found() const { return found_; }
  std::uint32_t limit() const { return static_cast<std::uint32_t>(objects_.Limit()); }  // ids are below it

  // Slot of the object's next use; with after_this of the one after a use that is due now (less than a window away). kNever if none is known.
  std::uint64_t NextUse(std::uint32_t id, bool after_this) const;
  // The slot is not consumed and its object not in the tier: its id, else TIERD_NO_OBJECT.
  std::uint32_t MissingAt(std::uint64_t slot, std::uint32_t tier) const;

  // Goes through the residents of a tier, used last first: those without a known use, then by their next use.
  class Last {
   public:
    Last(const Timeline& timeline, std::uint32_t tier);
    // TIERD_NO_OBJECT when there are no more.
    std::uint32_t id() const { return id_; }
    std::uint64_t slot() const { return slot_; }  // of its next use, kNever if unknown
    void Next();

   private:
    void Find();
    const Timeline& timeline_;
    const std::uint32_t tier_;
    std::size_t idle_;         // of those without a use, how many are left
    std::uint64_t below_;      // slots from here on have been gone through
    std::uint32_t id_ = TIERD_NO_OBJECT;
    std::uint64_t slot_ = kNever;
  };

 private:
  // A word: bits 31 and 30 say that its object is in tier 0, 1 and this is its next use; 29: the rest is the object's id (its next use, or the last
  // that is known); else the rest is the low 29 bits of the slot of its following use.
  static constexpr std::uint32_t kNamed = 1u << 29;
  static constexpr std::uint32_t kRest = kNamed - 1;
  static constexpr std::uint32_t kConsumed = kNamed | kRest;    // kMaxId leaves these two out
  static constexpr std::uint32_t kVoid = kNamed | (kRest - 1);  // nobody's any more: withdrawn, forgotten
  static constexpr std::uint32_t kPageSlots = 1u << 14;
  static constexpr std::uint32_t kBlock = 16;                // slots of one cache line
  static constexpr std::uint32_t kPages = (kRest + 1) / kPageSlots;

  struct Page {
    std::uint32_t words[kPageSlots];
    std::uint64_t blocks[TIERD_POLICY_TIERS][kPageSlots / kBlock / 64];  // has marked slots
    std::uint32_t marked[TIERD_POLICY_TIERS];
  };
  static std::uint32_t Mark(std::uint32_t tier) { return 1u << (31 - tier); }
  // Bit t for tier t.
  static std::uint32_t MarksOf(std::uint32_t word) { return (word >> 31) | (word >> 29 & 2); }
  // Which words of a block have the mark: a bit each.
  static unsigned MarkedIn(const std::uint32_t* block, std::uint32_t tier);
  struct Object {
    // Low bits of slots if `planned`, else next and last are the places in idle_ of tier 0 and 1.
    std::uint32_t next : 29 = 0;
    std::uint32_t known : 1 = 0;
    std::uint32_t planned : 1 = 0;    // has a next use
    std::uint32_t : 1;
    std::uint32_t last : 29 = 0;
    std::uint32_t idle : 2 = 0;       // where it is without a known use: bit t for tier t
    std::uint32_t : 1;
    std::uint32_t following : 29 = 0; // the use after the next, if there are `more`
    std::uint32_t more : 1 = 0;
    std::uint32_t beyond : 1 = 0;     // is in beyond_
    std::uint32_t : 1;
    std::uint32_t bytes = 0;          // saturates
  };
  static_assert(sizeof(Object) == 16);

  std::uint32_t& Word(std::uint64_t slot) { return pages_[slot / kPageSlots % kPages]->words[slot % kPageSlots]; }
  std::uint32_t Word(std::uint64_t slot) const { return pages_[slot / kPageSlots % kPages]->words[slot % kPageSlots]; }
  // The slot whose low bits these are: those in use span less than 2^29.
  std::uint64_t Whole(std::uint32_t low) const { return floor_ + ((low - static_cast<std::uint32_t>(floor_)) & kRest); }
  std::uint32_t IdAt(std::uint64_t slot) const;
  void SetMark(std::uint32_t tier, std::uint64_t slot);
  void ClearMark(std::uint32_t tier, std::uint64_t slot);
  void PlaceResident(std::uint32_t tier, std::uint32_t id);
  void UnplaceResident(std::uint32_t tier, std::uint32_t id);
  // The object's next use is over, its slot becomes `left`: goes on to the following one.
  void Pass(std::uint32_t id, std::uint32_t left);
  void AdvanceFloor();
  void GiveUpFirst();
  void GiveUpTowardsFound();
  // A use beyond the window, as the object's next: whether the readers are there by now. Then it and the other uses of the kind have been consumed.
  bool FoundBy(std::uint32_t id, std::uint64_t slot);
  void SetIdlePlace(std::uint32_t tier, std::uint32_t id, std::size_t place);

  PagedArray<Object> objects_;
  std::vector<std::unique_ptr<Page>> pages_;          // by slot / kPageSlots, modulo kPages
  std::vector<std::unique_ptr<Page>> spare_;          // at most one
  std::vector<std::uint32_t> idle_[TIERD_POLICY_TIERS];  // residents without a known use
  mutable std::uint64_t top_[TIERD_POLICY_TIERS] = {0, 0};  // slots from here on have no mark of the tier: looking for the last one lowers it
  std::uint64_t floor_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t ahead_ = 0;                           // consumed slots from floor_ on
  std::uint64_t missed_ = 0;
  // Where the majority of the latest uses lies (R. Boyer and J. Moore, "MJRTY: a fast majority vote algorithm", 1991), if not in the window: the candidate, the
  // votes for it, less those against it, and who was used there, each once.
  std::uint64_t beyond_at_ = 0;
  std::uint32_t beyond_votes_ = 0;
  std::vector<std::uint32_t> beyond_;
  std::uint64_t found_at_ = 0;                        // slots below it are given up by and by
  std::uint64_t found_ = 0;
  std::uint32_t window_ = 64;
  std::uint32_t smallest_ = UINT32_MAX;               // sizes ever known: where they are all alike, none is looked up
  std::uint32_t largest_ = 0;
};

}  // namespace tierd::policies
