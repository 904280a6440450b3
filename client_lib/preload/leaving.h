// Around a call after which this library may do nothing more for the process: its rights, its names or the system calls that it may make are others. A hit asks nobody, the
// daemon knows the process as it was when it connected, and what a filter does not allow ends the process.
//
// For that the whole library keeps out of the process: a change by one thread is rare, and one that is taken back is not told from one that is not. Any thread. errno is left
// to the call.
#pragma once

#include "client_lib/preload/counters.h"
#include "client_lib/preload/foreign.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/writers.h"
#include "client_lib/src/process.h"

namespace tierd::preload {

// `has_changed` gets the call's result.
template <typename Change, typename HasChanged>
auto LeaveIf(HasChanged has_changed, Change change) {
  if (!Active()) return change();
  {
    const client::KeepErrno keep;
    process.forking.fetch_add(1, std::memory_order_seq_cst);  // nothing is opened as ours meanwhile
    // As things are: afterwards what is open, the daemon's socket, /proc and the report may be out of reach.
    MaterialiseAll(Conversion::kChanged);
    TellWriters();
    WriteReport();
  }
  Foreign from_now(IsForeign::kYes);  // before it: afterwards no system call may be allowed
  const auto result = change();
  if (has_changed(result)) {
    from_now.Stay();
    process.active.store(false, std::memory_order_seq_cst);
  }
  process.forking.fetch_sub(1, std::memory_order_seq_cst);
  return result;
}

// Where success says that something has changed: some of these calls give a descriptor, or the id of a thread.
template <typename Change>
auto Leave(Change change) {
  return LeaveIf([](auto result) { return result >= 0; }, change);
}

}  // namespace tierd::preload
