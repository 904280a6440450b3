// For tests that mount something.
#pragma once

#include <sched.h>
#include <sys/mount.h>

namespace tierd::e2e {

// Mounts of this process are seen by it and its children alone, and go with the last of them. They reach children
// with a mount namespace of their own, as on a host under systemd: a daemon under its unit has one.
// Where namespaces are refused (tests/restricted) nothing changes: a test unmounts at its end either way.
inline void KeepMountsToOneself() {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
  (void)::mount(nullptr, "/", nullptr, MS_REC | MS_SHARED, nullptr);
}

}  // namespace tierd::e2e
