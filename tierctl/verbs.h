// The verbs: each asks the daemon, writes data to stdout, and returns the exit code.
#pragma once

#include <string>

#include "tierctl/cli.h"
#include "tierctl/client/control_client.h"
#include "tierctl/terminal/output.h"

namespace tierctl {

struct Context {
  const Command& command;
  ControlClient& client;
  Output& output;
  const std::string working_directory;
};

// The exit code of a verb that went on after what failed with `failure` (kExitOk: nothing did). `some`: something was done.
inline int PartlyDone(int failure, bool some) { return failure == kExitError && some ? kExitPartial : failure; }

int Status(Context& context);
int Version(Context& context);
int List(Context& context);
int Stat(Context& context);
int Explain(Context& context);
int DiskUse(Context& context);
int Prefetch(Context& context);
int Verify(Context& context);
int ListJobs(Context& context);
int WaitJobs(Context& context);
int CancelJobs(Context& context);
int Evict(Context& context);
int Pin(Context& context);
int Unpin(Context& context);
int ConfigGet(Context& context);
int ConfigSet(Context& context);
int ConfigReload(Context& context);
int Doctor(Context& context);
int Metrics(Context& context);
int Top(Context& context);
int DebugBundle(Context& context);
int PolicyList(Context& context);
int PolicyShow(Context& context);
int PolicySet(Context& context);
int PolicyTry(Context& context);
int PolicyPrioritize(Context& context);
int TraceStart(Context& context);
int TraceStop(Context& context);
int PlanTell(Context& context);
int PlanList(Context& context);
int PlanRemove(Context& context);
int Simulate(Context& context);
int Bench(Context& context);
int CollectGarbage(Context& context);
// Does not return where the command ended by a signal.
int Run(Context& context);

}  // namespace tierctl
