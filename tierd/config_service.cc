#include "tierd/config_service.h"

#include <algorithm>

namespace tierd {

namespace {

using Values = std::vector<config::EffectiveValue>;

const config::EffectiveValue* Find(const Values& values, const std::string& key) {
  const auto it = std::find_if(values.begin(), values.end(), [&](const config::EffectiveValue& value) { return value.key == key; });
  return it == values.end() ? nullptr : &*it;
}

// Whether anything comes from the file.
bool SaysAnything(const config::Config& config) {
  const Values values = config.Values();
  return std::any_of(values.begin(), values.end(), [](const config::EffectiveValue& value) { return value.origin.kind == config::Origin::Kind::kFile; });
}

}  // namespace

std::vector<server::ConfigHost::Value> ConfigService::values() const {
  const Values wanted = inputs_.config.Values();
  std::vector<Value> values;
  for (const config::EffectiveValue& now : effective_) {
    const config::EffectiveValue* later = Find(wanted, now.key);
    Value value{now.key, now.value, now.origin.Text(), now.reloadable, {}};
    if (later == nullptr) value.pending = "";  // its source goes
    else if (later->value != now.value) value.pending = later->value;
    values.push_back(std::move(value));
  }
  for (const config::EffectiveValue& later : wanted) {  // of a source that comes
    if (Find(effective_, later.key) == nullptr) values.push_back({later.key, "", later.origin.Text(), later.reloadable, later.value});
  }
  return values;
}

std::string ConfigService::ssd_refused() const {
  if (!inputs_.resolved.engine.ssd.directory.empty() || started_.settings().ssd.directory == "off") return "";
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
  if (SaysAnything(inputs_.config) && !SaysAnything(next))
    return Status(Code::kInvalid, file + ": is empty, which is taken for a mistake (is it being written?); restart tierd to go back to the defaults");
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
  // All of it has to be right, though some of it only counts at the next start.
  auto resolved = config::Resolve(next, inputs_.host);
  if (resolved.ok()) resolved = config::Resolve(next.InEffectSince(started_), inputs_.host);
  if (!resolved.ok()) return Status(Code::kInvalid, resolved.status().message());
  auto policies = Prepare(*resolved);
  if (!policies.ok()) return Status(Code::kInvalid, policies.status().message());
  Applied applied;
  for (const config::Change& change : config::Diff(inputs_.config, next))
    if (change.reloadable) applied.applied.push_back({change.key, change.from, change.to});
  for (const config::Change& change : config::Diff(started_, next))
    if (!change.reloadable) applied.restart.push_back({change.key, change.from, change.to});
  ApplyToEngine(*resolved, std::move(policies).value());
  if (on_log_level) on_log_level(resolved->log_level);
  const Values wanted = next.Values();
  for (config::EffectiveValue& now : effective_) {
    const config::EffectiveValue* later = Find(wanted, now.key);
    if (later != nullptr && (now.reloadable || now.value == later->value)) now = *later;
  }
  inputs_.config = std::move(next);
  return applied;
}

Result<std::vector<ConfigService::PolicyChange>> ConfigService::Prepare(const config::Resolved& next) {
  std::vector<PolicyChange> changes;
  for (const auto& unit : engine_.sources()) {
    const auto& sources = next.engine.sources;
    const auto wanted = std::find_if(sources.begin(), sources.end(), [&](const engine::SourceOptions& o) { return o.path == unit->options.path; });
    if (wanted == sources.end()) continue;  // needs a restart
    if (wanted->policy == unit->options.policy && wanted->policy_parameters == unit->options.policy_parameters) continue;
    auto policy = engine_.PreparePolicy(wanted->policy, wanted->policy_parameters);
    if (!policy.ok()) return Status(policy.status().code(), "source." + wanted->name + ".policy: " + policy.status().message());
    changes.push_back({unit.get(), &*wanted, std::move(policy).value()});
  }
  return changes;
}

void ConfigService::ApplyToEngine(const config::Resolved& next, std::vector<PolicyChange> policies) {
  for (PolicyChange& change : policies) engine_.SwitchPolicy(*change.unit, std::move(change.policy), change.wanted->policy, change.wanted->policy_parameters);
  for (const auto& unit : engine_.sources()) {
    for (const engine::SourceOptions& wanted : next.engine.sources) {
      if (wanted.path != unit->options.path) continue;
      unit->options.bytes_per_s = wanted.bytes_per_s;
      unit->options.requests_per_s = wanted.requests_per_s;
      unit->reader->SetBudgets(wanted.bytes_per_s, wanted.requests_per_s);
    }
  }
  if (next.engine.ram.capacity_bytes != engine_.placement().ram_capacity()) engine_.placement().SetRamCapacity(next.engine.ram.capacity_bytes);
  if (ssd::SsdTier* ssd = engine_.ssd()) {
    ssd->SetCapacity(next.engine.ssd.capacity_bytes);
    ssd->SetMinFree(next.engine.ssd.min_free_bytes, next.engine.ssd.min_free_inodes);
  }
  engine_.Kick();
}

}  // namespace tierd
