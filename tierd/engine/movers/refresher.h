// Asks again about files whose deadline is near, so that an epoch longer than the ttl does not pay a stat per file while readers wait: cached
// files of sources in staleness mode `ttl`, in mode `immutable` those whose access is asked about (HAZARDS 2.18), and only while somebody
// reads from the source. It costs the source at most kStatsPerRead requests per
// read, at low priority and within the source's budgets; nobody reads: nothing is asked.
//
// It believes what a stat on demand may believe, no more (HAZARDS 2.12, 2.15): another version evicts, an error changes nothing and the slot
// runs out as it would have, copies with young stamps are not restated.
//
// Owner: Engine. Loop thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tierd/base/clock.h"
#include "tierd/engine/catalogue/catalogue.h"
#include "tierd/engine/fetch/fetcher.h"
#include "tierd/engine/residency/placement.h"

namespace tierd::engine {

class Refresher {
 public:
  // Requests to the source that one read buys. An epoch of 3 ttl needs 4 to find every file fresh.
  static constexpr std::uint64_t kStatsPerRead = 4;
  static constexpr std::uint64_t kMostCredit = 65'536;
  static constexpr std::size_t kUnderWay = 64;
  // Credit is void when nobody has read for so long.
  static constexpr std::int64_t kIdleNs = 2'000'000'000;

  Refresher(Catalogue& catalogue, Placement& placement, Fetcher& fetcher, SourceTable& sources, const Clock& clock)
      : catalogue_(catalogue), placement_(placement), fetcher_(fetcher), sources_(sources), clock_(clock) {}

  // A client has read a file of the source.
  void OnRead(SourceUnit& unit, std::int64_t now_ns) {
    unit.refresh_credit = std::min(unit.refresh_credit + kStatsPerRead, kMostCredit);
    unit.last_read_ns = now_ns;
  }
  // Looks at a bounded number of the index's slots, as many as are due by the time that has passed. True: more are due at once.
  bool Step();

 private:
  bool Wanted(const SourceUnit& unit) const;
  bool Worth(FileId file) const;  // some of it is cached, and a stat alone may confirm it

  Catalogue& catalogue_;
  Placement& placement_;
  Fetcher& fetcher_;
  SourceTable& sources_;
  const Clock& clock_;
  std::uint64_t position_ = 0;   // in the index, going round
  double to_look_at_ = 0;        // slots that time has made due to be looked at
  std::int64_t last_step_ns_ = 0;
  std::size_t under_way_ = 0;
};

}  // namespace tierd::engine
