// Kill points: named lines at which a test build ends itself as kill -9 would (tools: FAULTS "KP"). Compiled only with
// TIERD_KILL_POINTS; otherwise the macro is empty. At run time the environment variable TIERD_KILL_POINT=name:count ends the process
// when that line is reached for the count-th time (count from 1, default 1).
//
// Names are registered in kill_point.cc, so that the crash test can enumerate them: an unregistered name fails a check when reached.
// Thread-safe.
#pragma once

#include <span>

namespace tierd {

// All registered names.
std::span<const char* const> KillPointNames();
// Ends the process by SIGKILL if this is the chosen line and turn.
void ReachKillPoint(const char* name);

}  // namespace tierd

#ifdef TIERD_KILL_POINTS
#define TIERD_KILL_POINT(name) ::tierd::ReachKillPoint(name)
#else
#define TIERD_KILL_POINT(name) \
  do {                         \
  } while (0)
#endif
