// Around a call that gives a process, or one of its threads, other rights: where they have changed, the source decides about each file from then on (leaving.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <initializer_list>

#include "client_lib/preload/leaving.h"
#include "client_lib/preload/process.h"

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
  return LeaveIf([&](auto) { return Credentials().DifferFrom(before); }, change);
}

}  // namespace tierd::preload
