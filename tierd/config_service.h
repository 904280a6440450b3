// Ties the configuration to the running daemon: what the control plane may see and change, and what a reload (SIGHUP, POST /v1/config/reload) does.
// A change is checked as a whole on a copy; only then the daemon and the configuration follow, so that a wrong one changes nothing (FAULTS F36).
//
// Owner: main.cc. Loop thread only. A reload reads the file on the loop thread: local, at most 1 MiB; the paths of sources it does not touch.
#pragma once

#include <functional>
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
      : inputs_(std::move(inputs)), started_(inputs_.config), effective_(started_.Values()), engine_(engine) {}

  // What only the loaded policies can tell, beside config::Check of the start: a source that names none of them. kInvalid.
  Status Check(const policies::Registry& policies) const { return config::Check(inputs_.config, &policies); }
  void SetMetricsAddress(std::string address) { metrics_address_ = std::move(address); }
  std::function<void(config::LogLevel)> on_log_level;

  std::string file() const override { return inputs_.config.file(); }
  std::vector<Value> values() const override;
  Result<Applied> Set(const std::string& key, const std::string& value) override;
  Result<Applied> Reload() override;
  std::string runtime_directory() const override { return inputs_.resolved.control_socket.substr(0, inputs_.resolved.control_socket.rfind('/')); }
  std::string metrics_address() const override { return metrics_address_; }
  std::string ssd_refused() const override;

 private:
  struct PolicyChange {
    engine::SourceUnit* unit;
    const engine::SourceOptions* wanted;
    policies::PolicyInstance policy;
  };
  // Adopts `next` if the machine agrees; changes that need a restart are only reported.
  Result<Applied> Adopt(config::Config next);
  // Everything that can fail, before anything is changed.
  Result<std::vector<PolicyChange>> Prepare(const config::Resolved& next);
  void ApplyToEngine(const config::Resolved& next, std::vector<PolicyChange> policies);

  Inputs inputs_;                 // what is wanted now: the last configuration that was adopted
  const config::Config started_;  // what the daemon was started with: in effect where a key needs a restart
  std::vector<config::EffectiveValue> effective_;
  engine::Engine& engine_;
  std::string metrics_address_;
};

}  // namespace tierd
