// F08: whether a reader goes to the SSD tier or past it, to the source: an account of the time that the SSD has saved readers and cost them.
//
// A read of the SSD that took less than one of the source takes pays in what it has saved; a slow one (IsSlow) takes out what it took more. Each read that a reader waits for, wherever it
// goes, pays in kShare of what the source takes. While nothing is left, readers go to the source. So, however a device stalls (always, now and then, for a moment), its slow reads
// cost readers at most kShare of what the source alone takes them, kMostNs and the reads that were under way when the account was used up. Neither credit nor debt goes beyond kMostNs,
// the most that a reader waits for the SSD (F07): a device that has served well for long may stall for a second in all before it is passed by, and is looked at again after at most
// kMostNs / kShare of reads of the source. One for each source and size class: none pays for what another loses. Times are of one request among those that are under way with it.
// Pure; owner: SourceUnit; loop thread only.
#pragma once

#include <algorithm>

namespace tierd::engine {

class SsdAccount {
 public:
  static constexpr double kShare = 1.0 / 8;
  static constexpr double kMostNs = 1e9;

  // A reader waits for a read of which the source takes `source_ns` (0: not known). Once for each.
  void Pay(double source_ns) { Add(kShare * AtLeast(source_ns)); }
  // Whether the SSD may be asked.
  bool has_credit() const { return balance_ns_ >= 0; }
  // It was, and took so long.
  void Took(double ssd_ns, double source_ns) {
    const bool slow = IsSlow(ssd_ns, source_ns);
    if (slow || ssd_ns < source_ns) Add((slow ? AtLeast(source_ns) : source_ns) - ssd_ns);
  }

  // A device that answers within 5 ms, or in less than twice what the source takes, is left alone; beside a source that was not measured yet, within 20 ms.
  static constexpr bool IsSlow(double ssd_ns, double source_ns) { return source_ns == 0 ? ssd_ns >= 20e6 : ssd_ns >= 5e6 && ssd_ns >= 2 * source_ns; }

 private:
  // None is taken for faster than 100 us; one that was not measured for 1 ms.
  static constexpr double AtLeast(double source_ns) { return source_ns == 0 ? 1e6 : std::max(source_ns, 100e3); }
  void Add(double ns) { balance_ns_ = std::clamp(balance_ns_ + ns, -kMostNs, kMostNs); }

  double balance_ns_ = kMostNs;  // what is new is trusted
};

}  // namespace tierd::engine
