// Brings what a plan says is read next, just early enough: asks the policy what it wants in RAM (next(), with the time of use), and until the policy has been
// told, goes by the plan itself and fills what is free.
//
// Early enough: whatever fits into free room at once, in the order of use. What others have to leave for only if it is due within the time that bringing takes
// (a few times what it took of late), if the policy would not keep what would leave (it is used sooner), and as long as what was brought and waits for its
// reader is at most a quarter of what is resident. Bounded in flight; demand goes before it at every queue.
//
// While nothing is to be brought to RAM, what is used soonest and is nowhere on the node fills free room of the SSD: a job that pauses, or whose RAM is full, leaves
// the source idle otherwise.
//
// Owner: Engine, one per source. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "tierd/base/clock.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/counters.h"
#include "tierd/engine/fetch/fetcher.h"
#include "tierd/engine/orders/foresight.h"
#include "tierd/engine/sources/look_ahead.h"
#include "tierd/engine/residency/placement.h"
#include "tierd/engine/sources/source_unit.h"

namespace tierd::engine {

class Forerunner {
 public:
  struct Parts {
    SourceUnit& unit;
    Foresight& foresight;
    Catalogue& catalogue;
    Placement& placement;
    Fetcher& fetcher;
    const Clock& clock;
    EngineCounters& counters;
    std::function<void()> wake;  // something has come: a turn is due
  };
  explicit Forerunner(const Parts& parts) : parts_(parts) {}
  ~Forerunner() { *alive_ = false; }

  // Every turn.
  void Step();
  // Once a second: forgets what has left unread.
  void Tick();
  // A reader has read it, from wherever.
  void OnAccess(ObjectId object);
  bool idle() const { return under_way_ == 0; }
  // Nothing is brought, as too little of it was read before it had to leave; and the used share that was seen then.
  bool resting() const { return gate_.resting(); }
  double used_share() const { return gate_.used_share(); }

  // At most so many, and fewer where the source takes fewer at a time: twice its window keeps it busy, and what is more waits in a line that nobody can change.
  static constexpr std::size_t kUnderWay = 512;
  static constexpr std::size_t kLeastUnderWay = 64;  // the SSD takes as many whatever the source
  static constexpr std::uint64_t kBytesUnderWay = std::uint64_t{64} << 20;

 private:
  struct Brought {
    std::int64_t ready_ns = 0;
    std::uint32_t bytes = 0;
  };
  bool Full(std::uint64_t bytes) const { return under_way_ >= most_ || (under_way_ > 0 && bytes_under_way_ + bytes > kBytesUnderWay); }
  enum class Into : std::uint8_t { kFreeRam, kRam, kSsd };  // kRam: others may have to leave
  void BringUndeclared();
  void BringWanted(std::int64_t now_ns);
  // True: something was asked for.
  bool FillSsd(std::int64_t now_ns);
  void Bring(std::string path, std::uint32_t chunk, std::uint32_t bytes, Into into);
  void OnBrought(std::uint32_t chunk, std::uint32_t bytes, Into into, std::int64_t begun_ns, const BringResult& result);
  void NoteNoRoom(std::uint32_t bytes, Into into);
  void NoteSsdTook(bool took);
  std::int64_t LeadNs() const;

  const Parts parts_;
  LookAheadGate gate_;
  std::size_t under_way_ = 0;
  std::size_t most_ = kLeastUnderWay;                     // of these
  std::uint64_t bytes_under_way_ = 0;
  std::unordered_set<std::uint32_t> asked_;               // objects under way that are known
  std::unordered_map<std::uint32_t, Brought> waiting_;    // brought, and not read yet; at most kMostWaiting
  std::uint64_t waiting_bytes_ = 0;
  double took_ns_ = 0;                                    // a bring, smoothed
  std::int64_t again_ns_ = 0;                             // nothing is brought before
  std::uint32_t no_place_bytes_ = 0;                      // what is free is in pieces: of so many bytes and more nothing found a place lately; 0: all did
  std::int64_t no_place_until_ns_ = 0;                    // and is not tried before
  std::int64_t leave_again_ns_ = 0;                       // nobody leaves for others before
  std::int64_t ssd_again_ns_ = 0;                         // nor to the SSD
  std::int64_t ssd_pause_ns_ = 1'000'000'000;             // when it next refuses something
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared with what is under way
};

}  // namespace tierd::engine
