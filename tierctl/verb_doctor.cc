// doctor: this machine, as the configuration would use it, and what a running daemon adds.
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "tierctl/doctor/check.h"
#include "tierctl/client/paths.h"
#include "tierctl/terminal/progress.h"
#include "tierctl/verbs.h"
#include "tierd/config/check.h"
#include "tierd/config/config.h"
#include "tierd/config/host.h"
#include "tierd/config/resolve.h"

namespace tierctl {
namespace {

using doctor::Check;
using doctor::Verdict;
using nlohmann::json;

// What is looked at: the command line says it, else a running daemon, else the configuration that one would start with.
struct Subject {
  std::string config_file;  // "": none
  tierd::config::Overrides overrides;
};

// `status`: what a daemon said of itself, if one did.
Subject FindSubject(Context& context, const Answer& status) {
  const Command& command = context.command;
  Subject subject;
  subject.config_file = command.config_file.empty() ? tierd::config::Config::FindFile(tierd::config::ProcessEnvironment()) : command.config_file;
  if (!command.source.empty()) subject.overrides.sources = {command.source};
  if (!command.cache.empty()) subject.overrides.ssd = command.cache;
  if (!command.config_file.empty() || !command.source.empty() || !command.cache.empty()) return subject;
  if (!status.ok()) return subject;
  subject.config_file = TextOf(status.body, "config_file");
  for (const json& source : ListOf(status.body, "sources")) subject.overrides.sources.push_back(PathOf(source));
  const json ssd = status.body.value(json::json_pointer("/tiers/ssd"), json::object());
  subject.overrides.ssd = TextOf(ssd, "state") == "off" ? "off" : TextOf(ssd, "directory");
  const Answer config = context.client.Get("/v1/config");
  for (const json& value : ListOf(config.body, "values")) {
    if (const std::string key = TextOf(value, "key"); key == "ram.capacity" || key == "ram.min_available") subject.overrides.sets.push_back(key + "=" + TextOf(value, "value"));
  }
  return subject;
}

// The settings of that file; on a mistake in it the defaults, and a check that says so.
tierd::config::Config LoadConfig(const std::string& file, std::vector<Check>* checks) {
  using tierd::config::Config;
  if (file.empty()) {
    checks->push_back({"configuration", Verdict::kOk, "none: defaults", ""});
    return Config::Defaults();
  }
  tierd::Result<Config> config = Config::Load(file);
  if (config.ok()) {
    checks->push_back({"configuration", Verdict::kOk, file, ""});
    return std::move(config).value();
  }
  const std::string& message = config.status().message();
  checks->push_back({"configuration", Verdict::kFail, message.substr(0, message.find('\n')), "tierd --config " + file + " --check-config"});
  return Config::Defaults();
}

void CheckMachine(Context& context, const Answer& daemon, std::vector<Check>* checks) {
  Subject subject = FindSubject(context, daemon);
  tierd::config::Config config = LoadConfig(subject.config_file, checks);
  std::erase_if(subject.overrides.sources, [&](const std::string& path) {  // those of the file
    return std::any_of(config.settings().sources.begin(), config.settings().sources.end(), [&](const auto& listed) { return listed.path == path; });
  });
  if (tierd::Status status = config.Apply(subject.overrides, context.working_directory); !status.ok()) {
    checks->push_back({"configuration", Verdict::kFail, status.message().substr(0, status.message().find('\n')), "correct the option"});
  }
  if (subject.overrides.sources.empty() && config.settings().automatic_sources) {
    const tierd::config::Mounts mounts = tierd::config::ChooseMounts(tierd::config::NetworkMountPoints(), config);
    for (const std::string& note : mounts.notes) checks->push_back({"source.mount", Verdict::kWarn, note, "tierctl doctor --source DIR"});
    config.AdoptMounts(mounts.usable);
  }

  const tierd::config::HostFacts host = tierd::config::CollectHost(config, tierd::config::ProcessEnvironment());
  const tierd::Result<tierd::config::Resolved> resolved = tierd::config::Resolve(config, host);
  if (resolved.ok() && !daemon.ok()) {  // a running daemon says its own
    for (const std::string& note : resolved->option_notes) checks->push_back({"options", Verdict::kWarn, note, ""});
  }

  utsname system{};
  ::uname(&system);
  checks->push_back(doctor::KernelVersion(system.release));
  checks->push_back(doctor::IoUring());
  for (Check& check : doctor::HugePages("/sys")) checks->push_back(std::move(check));
  checks->push_back(doctor::UserNamespaces());
  checks->push_back(doctor::LockedMemory());
  checks->push_back(doctor::FileDescriptors());
  if (resolved.ok()) checks->push_back(doctor::MemoryLimit(resolved->engine.ram.capacity_bytes, resolved->engine.ram.min_available_bytes));
  if (std::optional<Check> slurm = doctor::SlurmAccounting(doctor::SlurmConfigFiles(std::getenv("SLURM_CONF")))) checks->push_back(std::move(*slurm));
  checks->push_back(doctor::TimeNamespace("/proc/self/timens_offsets"));
  if (!resolved.ok()) {
    checks->push_back({"ssd.directory", Verdict::kFail, resolved.status().message(), "name another directory: ssd.directory or tierd --ssd DIR"});
  } else if (resolved->engine.ssd.directory.empty()) {
    std::string why;
    for (const std::string& note : resolved->notes) why += "; " + note;
    checks->push_back({"ssd.directory", Verdict::kWarn, "no SSD tier" + why, "name a local directory: ssd.directory or tierd --ssd DIR"});
  } else {
    for (Check& check : doctor::Disk(resolved->engine.ssd.directory, !context.command.no_speed)) checks->push_back(std::move(check));
  }
  Progress progress(context.output);
  for (const auto& source : config.settings().sources) {
    progress.ShowNow("looking at " + Escaped(source.path));  // it may hang for seconds
    for (Check& check : doctor::Source(source.path)) checks->push_back(std::move(check));
  }
  if (config.settings().sources.empty()) checks->push_back({"source.type", Verdict::kWarn, "no source is configured and no network file system that can be used is mounted", "tierctl doctor --source DIR"});
}

// What the running daemon knows; true if one runs.
bool AskDaemon(Context& context, const Answer& status, std::vector<Check>* checks) {
  if (status.silent) {
    checks->push_back({"daemon", Verdict::kFail, status.message, "kill -CONT goes on with one that was stopped; else see its log and dmesg"});
    return true;
  }
  const Answer answer = context.client.Get("/v1/doctor");
  if (!answer.ok()) {
    const bool runs = answer.exit != kExitUnreachable;
    checks->push_back({"daemon", runs ? Verdict::kFail : Verdict::kWarn, answer.message, runs ? "tierctl version" : "tierd --source DIR"});
    return runs;
  }
  checks->push_back({"daemon", Verdict::kOk, "running at " + context.client.socket(), ""});
  for (const json& row : ListOf(answer.body, "checks")) {
    const std::string state = TextOf(row, "state");
    checks->push_back({TextOf(row, "name"), state == "fail" ? Verdict::kFail : state == "warn" ? Verdict::kWarn : Verdict::kOk, TextOf(row, "detail"), TextOf(row, "remedy")});
  }
  return true;
}

void PrintChecks(Context& context, const std::vector<Check>& checks) {
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  for (const Check& check : checks) {
    const Palette& palette = context.output.palette();
    const std::string word = check.verdict == Verdict::kOk ? palette.Good("OK  ") : check.verdict == Verdict::kWarn ? palette.Attention("WARN") : palette.Wrong("FAIL");
    context.output.Print(word + "  " + check.name + std::string(width - check.name.size() + 2, ' ') + Escaped(check.detail) + "\n");
    if (check.verdict != Verdict::kOk && !check.remedy.empty()) context.output.Print(std::string(width + 8, ' ') + "-> " + Escaped(check.remedy) + "\n");
  }
}

}  // namespace

int Doctor(Context& context) {
  context.client.WaitAtMost(ControlClient::kLookMs);
  std::vector<Check> checks;
  const Answer status = context.client.Get("/v1/status");
  CheckMachine(context, status, &checks);
  const bool daemon = AskDaemon(context, status, &checks);
  if (context.output.json()) {
    json rows = json::array();
    for (const Check& check : checks) rows.push_back({{"name", check.name}, {"state", doctor::VerdictName(check.verdict)}, {"detail", check.detail}, {"remedy", check.remedy}});
    context.output.PrintJson({{"daemon", daemon}, {"checks", rows}});
  } else {
    PrintChecks(context, checks);
  }
  const bool failed = std::any_of(checks.begin(), checks.end(), [](const Check& check) { return check.verdict == Verdict::kFail; });
  return failed ? kExitError : kExitOk;
}

}  // namespace tierctl
