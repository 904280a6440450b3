// Ties the configuration to the running daemon: what the control plane may see and change, and what a reload (SIGHUP, POST /v1/config/reload) does.
// A change is checked as a whole on a copy; only then the daemon and the configuration follow, so that a wrong one changes nothing (FAULTS F36).
//
// Owner: main.cc. Loop thread only. What a reload has to look at (the file, the paths that it names) is looked at beside the loop: any of it may hang.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "policies/policy_instance.h"
#include "tierd/config/check.h"
#include "tierd/config/config.h"
#include "tierd/config/host.h"
#include "tierd/config/resolve.h"
#include "tierd/engine/engine.h"
#include "tierd/server/control_api.h"

namespace tierd {

class ConfigService final : public server::ConfigHost {
 public:
  struct Inputs {
    config::Config config;
    config::Overrides overrides;
    std::string working_directory;
    config::HostFacts host;
    config::Resolved resolved;
  };
  ConfigService(Inputs inputs, engine::Engine& engine)
      : inputs_(std::move(inputs)), started_(inputs_.config), next_host_(inputs_.host), effective_(started_.Values()), here_(inputs_.resolved.here), engine_(engine) {}

  // What only the loaded policies can tell, beside config::Check of the start: a source that names none of them. kInvalid.
  Status Check(const policies::Registry& policies) const { return config::Check(inputs_.config, &policies); }
  void SetMetricsAddress(std::string address) { metrics_address_ = std::move(address); }
  std::function<void(config::LogLevel)> on_log_level;

  std::string file() const override { return inputs_.config.file(); }
  std::vector<Value> values() const override;
  Result<Applied> Set(const std::string& key, const std::string& value) override;
  // One at a time: who comes meanwhile gets the answer of the next one, and kBusy where many wait.
  void Reload(Reloaded done) override;
  std::string runtime_directory() const override { return inputs_.resolved.control_socket.substr(0, inputs_.resolved.control_socket.rfind('/')); }
  std::string metrics_address() const override { return metrics_address_; }
  std::string ssd_refused() const override;
  std::vector<std::string> option_notes() const override;
  // Why the metrics are not served at the address that was named.
  void NoteMetrics(std::string note) { metrics_note_ = std::move(note); }

 private:
  struct PolicyChange {
    engine::SourceUnit* unit;
    const engine::SourceOptions* wanted;
    policies::PolicyInstance policy;
  };
  // What the next start would begin with.
  struct Candidate {
    config::Config config;
    config::HostFacts host;
  };
  // All that looking at one needs of the daemon. `config` is what is wanted now.
  struct Look {
    Inputs inputs;
    config::Config started;
    std::vector<std::string> served;
  };
  static Result<Candidate> LookAt(const Look& look);
  // LookAt on a thread of its own, which is left alone when it hangs.
  static Result<Candidate> LookInTime(Look look);
  void BeginReload();
  void EndReload(Result<Candidate> next);
  // Adopts `next` if the machine agrees; changes that need a restart are only reported.
  Result<Applied> Adopt(Candidate next);
  // Everything else that can fail, before anything is changed; `next` outlives what it returns.
  Result<std::vector<PolicyChange>> Prepare(const config::Config& next);
  // What `key` has come out as, where that depends on the machine.
  std::optional<std::string> Here(const std::string& key) const;
  void ApplyToEngine(const config::Resolved& next, std::vector<PolicyChange> policies);

  Inputs inputs_;                 // what is wanted now: the last configuration that was adopted, on the machine as it was at the start
  const config::Config started_;  // what the daemon was started with: in effect where a key needs a restart
  config::HostFacts next_host_;   // the machine as the last configuration will find it
  std::vector<config::EffectiveValue> effective_;
  std::map<std::string, std::string> here_;  // what of these depends on the machine has come out as
  engine::Engine& engine_;
  std::string metrics_address_;
  std::string metrics_note_;  // "": they are, or are not wanted
  std::vector<Reloaded> asked_;      // by these, for the reload that is under way
  std::vector<Reloaded> asked_next_;
};

}  // namespace tierd
