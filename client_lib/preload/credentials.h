// Around a call that gives a process, or one of its threads, other rights. A hit asks nobody, and the daemon knows the rights that the process had when it connected: where they
// have changed, the source decides about each file from then on.
//
// For that the whole library keeps out of the process: a change by one thread is rare, and one that is taken back is not told from one that is not. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <initializer_list>

#include "client_lib/preload/counters.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/writers.h"
#include "client_lib/src/process.h"

namespace tierd::preload {

// What the kernel asks this thread's rights to a file of.
class Credentials {
 public:
  Credentials();
  // True as well where there are too many groups to compare.
  bool DifferFrom(const Credentials& before) const;

 private:
  static constexpr long kGroups = 64;
  std::uint32_t ids_[4];
  std::uint64_t capabilities_ = 0;
  long groups_;
  gid_t group_[kGroups] = {};
};

// Whether a call that sets user ids, or group ids, to these asks for others than there are; ~0: leave it. The ids that the process has, real, effective and saved, are read by
// `get` (SYS_getresuid, SYS_getresgid).
bool AsksForOthers(long get, std::initializer_list<std::uint32_t> wanted);

template <typename Change>
auto ChangeCredentials(Change change) {
  if (!Active()) return change();
  const Credentials before;
  {
    const client::KeepErrno keep;
    process.forking.fetch_add(1, std::memory_order_seq_cst);  // nothing is opened as ours meanwhile
    // By the rights that there are: afterwards the source may refuse what is open, the daemon's socket, /proc and the report.
    MaterialiseAll(Conversion::kChanged);
    TellWriters();
    WriteReport();
  }
  const auto result = change();
  if (Credentials().DifferFrom(before)) process.active.store(false, std::memory_order_seq_cst);
  process.forking.fetch_sub(1, std::memory_order_seq_cst);
  return result;
}

}  // namespace tierd::preload
