// gc: disk space that nobody has any use for. Directories of `tierctl run`s that were killed with their daemons, and regions of the running daemon in which nothing lives.
#include <unistd.h>

#include "tierctl/run/ledger.h"
#include "tierctl/run/scratch.h"
#include "tierctl/verbs.h"
#include "tierd/config/units.h"

namespace tierctl {

using tierd::config::HumanSize;

// To give the space of many regions back takes the file system a while; whether the daemon is there at all is known before.
constexpr int kGiveBackMs = 30'000;

int CollectGarbage(Context& context) {
  const run::LeftOvers ended = run::RemoveAllLeftOvers(tierd::config::ProcessEnvironment(), ::geteuid());
  if (auto ledger = run::Ledger::Open(run::LedgerBase(tierd::config::ProcessEnvironment()), ::geteuid(), 0)) ledger->RemoveIfEmpty();
  context.client.WaitAtMost(ControlClient::kLookMs);
  Answer daemon = context.client.Get("/v1/version");
  if (daemon.exit != kExitUnreachable) {
    context.client.WaitAtMost(kGiveBackMs);
    daemon = context.client.Post("/v1/gc", nlohmann::json::object());
  }
  const bool there = daemon.exit != kExitUnreachable;
  const std::uint64_t ssd = daemon.ok() ? NumberOf(daemon.body, "ssd_bytes") : 0;
  if (context.output.json()) {
    context.output.PrintJson({{"daemon", there}, {"ssd_bytes", ssd}, {"ended_runs", ended.directories}, {"ended_runs_bytes", ended.bytes}});
  } else {
    context.output.Print("ended runs: " + HumanSize(ended.bytes) + " of " + std::to_string(ended.directories) + (ended.directories == 1 ? " directory\n" : " directories\n"));
    if (daemon.ok()) context.output.Print("SSD tier: " + HumanSize(ssd) + " of dead regions; it holds " + HumanSize(NumberOf(daemon.body, "ssd_allocated_bytes")) + " now\n");
  }
  if (daemon.silent || (there && !daemon.ok())) return context.output.Fail(daemon);
  if (!there) context.output.Message(daemon.message.substr(0, daemon.message.find(';')));
  return kExitOk;
}

}  // namespace tierctl
