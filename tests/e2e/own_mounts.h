// For tests that mount something.
#pragma once

#include <sched.h>
#include <sys/mount.h>

namespace tierd::e2e {

// What this process mounts from now on is seen by it and its children alone, and goes with the last of them. Where namespaces are refused (tests/restricted) nothing changes:
// a test unmounts at its end either way.
inline void KeepMountsToOneself() {
  if (::unshare(CLONE_NEWNS) == 0) (void)::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
}

}  // namespace tierd::e2e
