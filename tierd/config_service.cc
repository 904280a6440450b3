#include "tierd/config_service.h"

#include <algorithm>

namespace tierd {

std::vector<server::ConfigHost::Value> ConfigService::values() const {
  std::vector<Value> values;
  for (const config::EffectiveValue& value : inputs_.config.Values()) values.push_back({value.key, value.value, value.origin.Text(), value.reloadable});
  return values;
}

std::string ConfigService::ssd_refused() const {
  if (!inputs_.resolved.engine.ssd.directory.empty() || inputs_.config.settings().ssd.directory == "off") return "";
  std::string text;
  for (const std::string& note : inputs_.resolved.notes) text += (text.empty() ? "" : "; ") + note;
  return text;
}

Result<server::ConfigHost::Applied> ConfigService::Set(const std::string& key, const std::string& value) {
  config::Config next = inputs_.config;
  if (Status status = next.Set(key, value); !status.ok()) {
    if (status.code() == Code::kUnsupported) return Status(Code::kBusy, status.message());
    return status;
  }
  return Adopt(std::move(next));
}

Result<server::ConfigHost::Applied> ConfigService::Reload() {
  const std::string file = inputs_.config.file();
  if (file.empty()) return Status(Code::kInvalid, "there is no configuration file to reload; start tierd with --config FILE");
  auto loaded = config::Config::Load(file);
  if (!loaded.ok()) return Status(Code::kInvalid, loaded.status().message());
  config::Config next = std::move(loaded).value();
  if (Status status = next.ApplyEnvironment(config::ProcessEnvironment()); !status.ok()) return status;
  if (Status status = next.Apply(inputs_.overrides, inputs_.working_directory); !status.ok()) return status;
  if (next.settings().automatic_sources) {
    // Mounts are taken as they were at the start: another set of sources needs a restart.
    std::vector<std::string> mounted;
    for (const auto& unit : engine_.sources()) mounted.push_back(unit->options.path);
    next.AdoptMounts(mounted);
  }
  return Adopt(std::move(next));
}

Result<server::ConfigHost::Applied> ConfigService::Adopt(config::Config next) {
  auto resolved = config::Resolve(next, inputs_.host);
  if (!resolved.ok()) return Status(Code::kInvalid, resolved.status().message());
  Applied applied;
  for (const config::Change& change : config::Diff(inputs_.config, next))
    (change.reloadable ? applied.applied : applied.restart).push_back({change.key, change.from, change.to});
  if (Status status = ApplyToEngine(*resolved); !status.ok()) return Status(Code::kInvalid, status.message());
  if (on_log_level) on_log_level(resolved->log_level);
  inputs_.config = std::move(next);
  return applied;
}

Status ConfigService::ApplyToEngine(const config::Resolved& next) {
  // The policy first: it is the one change that can fail.
  for (const auto& unit : engine_.sources()) {
    const auto& wanted = next.engine.sources;
    const auto it = std::find_if(wanted.begin(), wanted.end(), [&](const engine::SourceOptions& o) { return o.path == unit->options.path; });
    if (it == wanted.end()) continue;  // needs a restart
    if (it->policy != unit->options.policy || it->policy_parameters != unit->options.policy_parameters) {
      if (Status status = engine_.SwitchPolicy(*unit, it->policy, it->policy_parameters); !status.ok()) return status;
    }
    unit->options.bytes_per_s = it->bytes_per_s;
    unit->options.requests_per_s = it->requests_per_s;
    unit->reader->SetBudgets(it->bytes_per_s, it->requests_per_s);
  }
  if (next.engine.ram.capacity_bytes != engine_.placement().ram_capacity()) engine_.placement().SetRamCapacity(next.engine.ram.capacity_bytes);
  if (ssd::SsdTier* ssd = engine_.ssd()) {
    ssd->SetCapacity(next.engine.ssd.capacity_bytes);
    ssd->SetMinFree(next.engine.ssd.min_free_bytes, next.engine.ssd.min_free_inodes);
  }
  engine_.Kick();
  return Status::Ok();
}

}  // namespace tierd
