// How the daemons that one user's runs have started on a node divide it. A run that finds others
// here gives its daemon a part of what is free and makes theirs as small where nobody named a size,
// so that what all of them promise is no more than there is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tierctl/run/ledger.h"

namespace tierctl::run {

// What a daemon promises of memory, or of one disk, and what it has of it.
struct Claim {
  std::uint64_t promised_bytes = 0;
  std::uint64_t held_bytes = 0;
  bool automatic = true;  // nobody named it
};
// The most that each automatic claim may promise, the new one among them. `free_bytes`: what nobody
// holds. `percent`: of what is free and held, how much caches may promise in all. Claims that were
// named come first.
std::uint64_t EqualShare(const std::vector<Claim>& others, bool is_new_automatic, std::uint64_t new_named_bytes, std::uint64_t free_bytes, unsigned percent);

struct Share {
  std::string ram, ssd_capacity;  // for the daemon's options; "": what it would take alone
  bool ram_auto = true, ssd_auto = true;
  bool without_ssd = false;  // its part is less than an SSD tier needs
  std::string said;  // one line for the user; "": nobody else is here
};
// `ssd`: the directory of the new daemon's SSD tier, or "off". Asks the other daemons, and tells
// those that have to give way.
Share Divide(const std::vector<Ledger::Entry>& others, const DaemonOptions& options, const std::string& ssd, const JobIdentity& identity,
             const tierd::config::GetEnvironment& environment);

}  // namespace tierctl::run
