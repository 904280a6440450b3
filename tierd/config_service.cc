#include "tierd/config_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tierd/config/ask_beside.h"
#include "tierd/engine/out_of_memory.h"
#include "tierd/ram/segment.h"

namespace tierd {

namespace {

constexpr std::size_t kMostAsked = 64;
constexpr std::chrono::seconds kSourcesPatience{5};  // those of a new file
constexpr std::chrono::seconds kPatience{15};        // all of it; tierctl waits for 30

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
    Value value{now.key, now.value, now.origin.Text(), now.reloadable, {}, Here(now.key)};
    if (later == nullptr) value.pending = "";  // its source goes
    else if (later->value != now.value) value.pending = later->value;
    values.push_back(std::move(value));
  }
  for (const config::EffectiveValue& later : wanted) {  // of a source that comes
    if (Find(effective_, later.key) == nullptr) values.push_back({later.key, "", later.origin.Text(), later.reloadable, later.value, {}});
  }
  return values;
}

std::optional<std::string> ConfigService::Here(const std::string& key) const {
  const auto found = here_.find(key);
  if (found == here_.end()) return std::nullopt;
  // Those were not known before the start.
  if (key == "ram.pages") return ram::PageKindName(engine_.placement().page_kind());
  if (key == "ssd.engine") return engine_.ssd() == nullptr ? "off" : engine_.ssd_engine_name();
  if (!key.starts_with("source.")) return found->second;
  for (const auto& unit : engine_.sources())
    if (key == "source." + unit->options.name + ".engine") return unit->reader->counters().engine;
  return std::nullopt;
}

std::string ConfigService::ssd_refused() const {
  if (!inputs_.resolved.engine.ssd.directory.empty() || started_.settings().ssd.directory == "off") return "";
  std::string text;
  for (const std::string& note : inputs_.resolved.notes) text += (text.empty() ? "" : "; ") + note;
  return text;
}

std::vector<std::string> ConfigService::option_notes() const {
  std::vector<std::string> notes = inputs_.resolved.option_notes;
  if (!metrics_note_.empty()) notes.push_back(metrics_note_);
  return notes;
}

Result<server::ConfigHost::Applied> ConfigService::Set(const std::string& key, const std::string& value) {
  config::Config next = inputs_.config;
  if (Status status = next.Set(key, value); !status.ok()) {
    if (status.code() == Code::kUnsupported) return Status(Code::kBusy, status.message());
    return status;
  }
  if (engine_.ssd() == nullptr && key.starts_with("ssd.")) {
    const std::string why = ssd_refused();
    return Status(Code::kBusy, key + " has nothing to act on: there is no SSD tier; " + (why.empty() ? "ssd.directory is off" : why));
  }
  return Adopt({std::move(next), next_host_});
}

Result<ConfigService::Candidate> ConfigService::LookAt(const Look& look) {
  const std::string& file = look.inputs.config.file();
  auto loaded = config::Config::Load(file);
  if (!loaded.ok()) return loaded.status();
  config::Config next = std::move(loaded).value();
  if (SaysAnything(look.inputs.config) && !SaysAnything(next))
    return Status(Code::kInvalid, file + ": is empty, which is taken for a mistake (is it being written?); restart tierd to go back to the defaults");
  const auto environment = config::ProcessEnvironment();
  if (Status status = next.ApplyEnvironment(environment); !status.ok()) return status;
  if (Status status = next.Apply(look.inputs.overrides, look.inputs.working_directory); !status.ok()) return status;
  // Mounts are taken as they were at the start: another set of sources needs a restart.
  if (next.settings().automatic_sources) next.AdoptMounts(look.served);
  const config::Running running{look.served, kSourcesPatience};
  if (Status status = config::Check(next, nullptr, &running); !status.ok()) return status;
  // The SSD directory of this daemon was judged at its start; what has become of it is told by `status`.
  const bool another = next.settings().ssd.directory != look.started.settings().ssd.directory;
  config::HostFacts host = another ? config::CollectHost(next, environment) : look.inputs.host;
  return Candidate{std::move(next), std::move(host)};
}

Result<ConfigService::Candidate> ConfigService::LookInTime(Look look) {
  const std::string file = look.inputs.config.file();
  auto answer = config::AskBeside([look = std::move(look)] { return LookAt(look); });
  if (answer.wait_for(kPatience) == std::future_status::ready) return answer.get();
  return Status(Code::kInvalid, file + ": a directory that it names does not answer: is its file system alive?");
}

void ConfigService::Reload(Reloaded done) {
  if (inputs_.config.file().empty()) return done(Status(Code::kInvalid, "there is no configuration file to reload; start tierd with --config FILE"));
  if (asked_next_.size() == kMostAsked) return done(Status(Code::kBusy, "a reload is under way, and many wait for the next one"));
  asked_next_.push_back(std::move(done));
  if (asked_.empty()) BeginReload();
}

void ConfigService::BeginReload() {
  Look look{inputs_, started_, {}};
  for (const auto& unit : engine_.sources()) look.served.push_back(unit->options.path);
  asked_ = std::exchange(asked_next_, {});
  if (!engine_.workers().Run([look = std::move(look)]() mutable { return LookInTime(std::move(look)); }, [this](Result<Candidate> next) { EndReload(std::move(next)); }))
    EndReload(Status(Code::kNoSpace, "out of memory"));
}

void ConfigService::EndReload(Result<Candidate> next) {
  const std::vector<Reloaded> asked = std::exchange(asked_, {});
  Result<Applied> result(Status(Code::kInvalid, "out of memory"));
  (void)engine::Survives([&] { result = next.ok() ? Adopt(std::move(next).value()) : Result<Applied>(Status(Code::kInvalid, next.status().message())); });
  for (const Reloaded& done : asked) (void)engine::Survives([&] { done(result); });
  if (!asked_next_.empty()) BeginReload();
}

Result<server::ConfigHost::Applied> ConfigService::Adopt(Candidate candidate) {
  auto& [next, host] = candidate;
  // All of it has to be right, though some of it only counts at the next start.
  auto resolved = config::Resolve(next, host);
  if (resolved.ok()) resolved = config::Resolve(next.InEffectSince(started_), inputs_.host);
  if (!resolved.ok()) return Status(Code::kInvalid, resolved.status().message());
  auto policies = Prepare(next);
  if (!policies.ok()) return Status(Code::kInvalid, policies.status().message());
  Applied applied;
  for (const config::Change& change : config::Diff(inputs_.config, next))
    if (change.reloadable) applied.applied.push_back({change.key, change.from, change.to});
  for (const config::Change& change : config::Diff(started_, next))
    if (!change.reloadable) applied.restart.push_back({change.key, change.from, change.to});
  ApplyToEngine(*resolved, std::move(policies).value());
  here_ = resolved->here;
  const std::vector<std::string> said = std::exchange(inputs_.resolved.option_notes, resolved->option_notes);
  for (const std::string& note : resolved->option_notes)
    if (std::find(said.begin(), said.end(), note) == said.end()) applied.notes.push_back(note);
  if (on_log_level) on_log_level(resolved->log_level);
  const Values wanted = next.Values();
  for (config::EffectiveValue& now : effective_) {
    const config::EffectiveValue* later = Find(wanted, now.key);
    if (later != nullptr && (now.reloadable || now.value == later->value)) now = *later;
  }
  inputs_.config = std::move(next);
  next_host_ = std::move(host);
  return applied;
}

Result<std::vector<ConfigService::PolicyChange>> ConfigService::Prepare(const config::Config& next) {
  std::vector<PolicyChange> changes;
  const auto& units = engine_.sources();
  for (const engine::SourceOptions& wanted : next.settings().sources) {
    const auto unit = std::find_if(units.begin(), units.end(), [&](const auto& one) { return one->options.path == wanted.path; });
    const bool served = unit != units.end();
    if (served && wanted.policy == (*unit)->options.policy && wanted.policy_parameters == (*unit)->options.policy_parameters) continue;
    auto policy = engine_.PreparePolicy(wanted.policy, wanted.policy_parameters);
    if (!policy.ok()) {
      const std::string key = "source." + wanted.name + ".policy";
      return Status(policy.status().code(), next.Where(key) + key + ": " + policy.status().message());
    }
    if (served) changes.push_back({unit->get(), &wanted, std::move(policy).value()});
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
