// tierd: builds every object, passes them by reference, turns the loop, and stops in order.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "policies/registry.h"
#include "tierd/base/clock.h"
#include "tierd/base/printable.h"
#include "tierd/base/unique_fd.h"
#include "tierd/config/check.h"
#include "tierd/config/config.h"
#include "tierd/config/config_view.h"
#include "tierd/config/host.h"
#include "tierd/config/resolve.h"
#include "tierd/config_service.h"
#include "tierd/end_guard.h"
#include "tierd/engine/engine.h"
#include "tierd/lifeline.h"
#include "tierd/root_watch.h"
#include "tierd/engine/out_of_memory.h"
#include "tierd/ram/private_tmpfs.h"
#include "tierd/ram/segment.h"
#include "tierd/server/control.h"
#include "tierd/server/metrics.h"
#include "tierd/server/plan_lists.h"
#include "tierd/server/seqpacket.h"
#include "tierd/server/session_hub.h"
#include "tierd/service_manager.h"
#include "tierd/ssd/directory.h"

namespace tierd {
namespace {

constexpr int kExitError = 1;
constexpr int kExitUsage = 64;
constexpr int kStopMs = 1500;
constexpr int kTemporaryFailure = 75;  // EX_TEMPFAIL: start it again
constexpr std::chrono::milliseconds kRootsBound{60'000};  // in which a root is looked at, of immutable sets too

struct CommandLine {
  std::string config_file;
  config::Overrides overrides;
  bool check_config = false;
  bool print_config = false;
  int lifeline = -1;
};

// "$DIR" of a script where DIR is not set: made absolute, it would be the working directory.
std::string IsGiven(const std::string& text) { return text.empty() ? "the value is empty; is a variable not set?" : ""; }

// Exit code, or -1 to go on.
int ParseCommandLine(int argc, char** argv, CommandLine* line) {
  CLI::App app{"tierd: serves the files of slow sources from node-local RAM and SSD.\n"
               "Without options: user mode, network mounts are the sources, the cache is on a local disk."};
  app.set_version_flag("--version", "tierd " TIERD_VERSION);
  app.add_option("--config", line->config_file, "configuration file (TOML); \"none\" ignores the usual places")->type_name("FILE")->check(IsGiven);
  config::Overrides& o = line->overrides;
  const auto text = [&](const char* name, std::optional<std::string>* target, const char* type, const char* help) {
    app.add_option_function<std::string>(name, [target](const std::string& value) { *target = value; }, help)->type_name(type)->check(IsGiven);
  };
  app.add_option("--source", o.sources, "a directory tree to accelerate; may be repeated")->type_name("DIR")->allow_extra_args(false)->check(IsGiven);
  text("--ram", &o.ram, "SIZE", "RAM tier: \"8 GiB\", \"25%\", \"auto\"");
  text("--ssd", &o.ssd, "DIR|off", "directory of the SSD tier, or off");
  text("--ssd-capacity", &o.ssd_capacity, "SIZE", "SSD tier: \"800 GB\", \"50%\", \"auto\"");
  text("--policy", &o.policy, "NAME", "policy of all sources: auto (default), freeze, lru, one more that tierctl policy list names, or one from the policy directory");
  text("--socket", &o.socket, "PATH", "socket for clients; its directory holds the control socket too");
  text("--metrics", &o.metrics, "ADDRESS:PORT|off", "where /metrics is served, in numbers: 127.0.0.1:9469, [::1]:9469; port 0 takes a free one");
  app.add_option("--set", o.sets, "any key of the configuration; source.KEY: of all sources, source.NAME.KEY: of one")->type_name("KEY=VALUE")->allow_extra_args(false);
  app.add_option("--lifeline", line->lifeline, "descriptor of a pipe: end when its other end is closed and no client is left (tierctl run)")->type_name("FD");
  app.add_flag("--check-config", line->check_config, "say whether the configuration is good, and end");
  app.add_flag("--print-config", line->print_config, "print the effective values with their origin, and end");
  try {
    for (const std::string_view word : std::span(argv, static_cast<std::size_t>(argc))) {
      // CLI11 would take the next word for the value of "--source=".
      if (word.starts_with("--") && word.find('=') == word.size() - 1) throw CLI::ValidationError(std::string(word.substr(0, word.size() - 1)), IsGiven(""));
    }
    app.parse(argc, argv);
    if (line->check_config && line->print_config) throw CLI::ValidationError("--print-config", "not together with --check-config");  // excludes() would stand in the help
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "tierd: %s (tierd --help lists the options)\n", Printable(error.what()).c_str());
    return kExitUsage;
  }
  return -1;
}

int Complain(const Status& status) {
  const std::string& message = status.message();
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t end = std::min(message.find('\n', at), message.size());
    std::fprintf(stderr, "tierd: %s\n", Printable(std::string_view(message).substr(at, end - at)).c_str());
    at = end + 1;
  }
  return status.code() == Code::kInvalid ? kExitUsage : kExitError;
}

Result<config::Config> LoadConfig(const CommandLine& line) {
  const auto environment = config::ProcessEnvironment();
  const std::string file = line.config_file == "none" ? "" : !line.config_file.empty() ? line.config_file : config::Config::FindFile(environment);
  config::Config config = config::Config::Defaults();
  if (!file.empty()) {
    auto loaded = config::Config::Load(file);
    // A file that was named and is not there is a wrong option.
    if (!loaded.ok()) return loaded.status().code() == Code::kNotFound ? Status(Code::kInvalid, loaded.status().message()) : loaded.status();
    config = std::move(loaded).value();
  }
  if (Status status = config.ApplyEnvironment(environment); !status.ok()) return status;
  if (Status status = config.Apply(line.overrides, std::filesystem::current_path().string()); !status.ok()) return status;
  if (config.settings().automatic_sources && line.overrides.sources.empty()) {
    const config::Mounts mounts = config::ChooseMounts(config::NetworkMountPoints(), config);
    for (const std::string& note : mounts.notes) std::fprintf(stderr, "tierd: %s\n", Printable(note).c_str());
    config.AdoptMounts(mounts.usable);
  }
  return config;
}

// A source whose policy would not begin.
Status CheckParameters(const config::Config& config, const config::Resolved& resolved, const policies::Registry& policies) {
  for (const engine::SourceOptions& source : config.settings().sources) {
    const auto ops = policies.Find(source.policy);
    if (!ops.ok()) return ops.status();
    const policies::PolicyInstance::Options options{.seed = resolved.engine.policy_seed, .capacity_bytes = {resolved.engine.ram.capacity_bytes, resolved.engine.ssd.capacity_bytes},
                                                    .parameters = source.policy_parameters};
    const std::string key = "source." + source.name + ".policy_parameters";
    if (auto made = policies::PolicyInstance::Create(**ops, options); !made.ok()) return Status(made.status().code(), config.Where(key) + key + ": " + made.status().message());
  }
  return Status::Ok();
}

std::vector<std::string> RuntimeDirectories(const config::Resolved& resolved) {
  std::vector<std::string> directories;
  for (const std::string& socket : {resolved.socket, resolved.control_socket}) directories.push_back(std::filesystem::path(socket).parent_path().string());
  return directories;
}

// --check-config: what else a start would refuse. Policies that cannot be loaded cost the daemon nothing but themselves, unless a source names one.
int CheckStart(const config::Config& config, const config::Resolved& resolved) {
  policies::Registry policies;
  if (!resolved.policy_directory.empty()) {
    for (const Status& status : policies.LoadDirectory(resolved.policy_directory))
      if (!status.ok()) std::fprintf(stderr, "tierd: %s\n", Printable(status.message()).c_str());
  }
  for (const std::string& directory : RuntimeDirectories(resolved))
    if (Status status = server::CheckRuntimeDirectory(directory); !status.ok()) return Complain(status);
  if (Status status = config::Check(config, &policies); !status.ok()) return Complain(status);
  if (Status status = CheckParameters(config, resolved, policies); !status.ok()) return Complain(status);
  const std::string& ssd = resolved.engine.ssd.directory;
  if (Status status = ssd.empty() ? Status::Ok() : ssd::CheckCacheDirectory(ssd); !status.ok()) return Complain(status);
  for (const std::string& note : resolved.option_notes) std::fprintf(stderr, "tierd: %s\n", Printable(note).c_str());
  std::puts("configuration ok");
  return 0;
}

// --print-config: whatever is wrong with the values, they are what to look at.
int PrintConfig(const config::Config& config, const Status& checked, const Result<config::Resolved>& resolved) {
  if (!checked.ok()) (void)Complain(checked);
  if (!resolved.ok()) (void)Complain(resolved.status());
  std::fputs(config::PrintToml(config, resolved.ok() ? resolved->here : config::Resolved().here).c_str(), stdout);
  return 0;
}

void RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// What it opens before the first client comes, that client's, and a few.
Status EnoughDescriptors() {
  constexpr rlim_t kFewest = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kFewest) return Status::Ok();
  return Status(Code::kIo, "too few descriptors: the limit of open files (ulimit -n) is " + std::to_string(limit.rlim_cur) + ", and " + std::to_string(kFewest) + " are needed");
}

// The table of descriptors grows now: beside threads the kernel makes whoever needs its growth, the loop, wait for a grace period (some 10 ms).
void GrowDescriptorTable() {
  constexpr rlim_t kSlots = 4096;  // of 8 bytes
  rlimit limit{};
  const UniqueFd any(::eventfd(0, EFD_CLOEXEC));
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || !any.valid()) return;
  const UniqueFd high(::fcntl(any.get(), F_DUPFD_CLOEXEC, static_cast<int>(std::min(limit.rlim_cur, kSlots)) - 1));
}

// Where memory runs out at once, before the RAM tier could give way, the kernel ends the cache first, and not the job beside it (F17): anybody may raise this for himself.
void GoFirstWhenMemoryIsOut() {
  constexpr std::string_view kMost = "1000";
  const UniqueFd fd(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (fd.valid()) (void)!::write(fd.get(), kMost.data(), kMost.size());
}

// Bursts (the names of a walk, a batch for the SSD index) must not stay with the daemon, spread over an arena per thread and below what is kept: 1 M files
// cost 360 MB with glibc's defaults, of which 55 MB were free.
void TuneAllocator() {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // a fixed one: freed blocks do not raise it
}

// One event is one line, whatever the names in it hold.
class PrintablePayload final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& line) override {
    const std::string text = Printable({message.payload.data(), message.payload.size()});
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<PrintablePayload>(); }
};

spdlog::level::level_enum SpdlogLevel(config::LogLevel level) { return static_cast<spdlog::level::level_enum>(level); }

class Daemon {
 public:
  Daemon(ConfigService::Inputs inputs, int lifeline)
      : resolved_(inputs.resolved),
        engine_(loop_, clock_, policies_, inputs.resolved.engine),
        sessions_(loop_, engine_, clock_, {.socket_path = inputs.resolved.socket, .max_sessions = inputs.resolved.limits.sessions}),
        config_(std::move(inputs), engine_),
        api_(loop_, engine_, sessions_, clock_, config_),
        control_(loop_, api_, {.max_connections = resolved_.limits.control_connections}),
        metrics_(loop_, engine_, sessions_, static_cast<double>(clock_.RealtimeNs()) * 1e-9),
        service_manager_(loop_),
        guard_(loop_, lifeline),
        lifeline_(loop_, lifeline),
        root_watch_(loop_) {}

  Status Start() {
    const auto log = [](std::string line) { spdlog::info("{}", line); };
    engine_.log = log;
    sessions_.log = log;
    engine_.on_turn = [this] { sessions_.FlushReplies(); };
    engine_.on_timer = [this] { sessions_.OnTimer(); };
    api_.policies = &policies_;
    api_.metrics_text = [this] { return metrics_.Text(); };
    config_.on_log_level = [](config::LogLevel level) { spdlog::set_level(SpdlogLevel(level)); };
    for (const std::string& directory : RuntimeDirectories(resolved_))
      if (Status status = server::PrepareRuntimeDirectory(directory); !status.ok()) return status;
    server::RemoveForgottenLists(resolved_.runtime_dir);
    LoadPolicies();
    if (Status status = config_.Check(policies_); !status.ok()) return status;
    if (Status status = guard_.Watch([this](int number) { OnSignal(number); }); !status.ok()) return status;
    if (Status status = engine_.Start(sessions_); !status.ok()) return status;
    if (!resolved_.metrics_address.empty()) StartMetrics();
    if (Status status = control_.Listen(resolved_.control_socket); !status.ok()) return status;
    return sessions_.Listen();
  }

  // Until it is to end; the exit code.
  int Run() {
    WatchRoots();
    lifeline_.Watch([this] { return sessions_.Sessions().sessions; }, [this] { loop_.stop(); });
    Announce();
    service_manager_.Ready();
    // What throws has given up what it was at; the loop goes on (F16).
    while (!engine::Survives([this] { loop_.run(); })) {
    }
    service_manager_.Stopping();
    sessions_.Close();
    control_.Close();
    engine_.Stop(kStopMs);
    return exit_code_;
  }

 private:
  // Another user's daemon, or somebody's exporter, may have the port: no reason not to serve reads. Where nobody named it any other does; whoever scrapes one that
  // was named must not get another daemon's numbers by a port of that one's, nor miss that they are not there.
  void StartMetrics() {
    Status status = metrics_.Start(resolved_.metrics_address);
    if (!status.ok() && resolved_.metrics_anywhere && metrics_.Start("127.0.0.1:0").ok()) {
      spdlog::info("metrics elsewhere address={} reason=\"{}\"", metrics_.address(), status.message());
    } else if (!status.ok()) {
      config_.NoteMetrics("daemon.metrics_address: " + status.message());
      spdlog::warn("metrics off reason=\"{}\"", status.message());
    }
    config_.SetMetricsAddress(metrics_.address());
  }

  // Whoever starts it again opens what lies there now; until then programs read the source.
  void WatchRoots() {
    std::vector<RootWatch::Root> roots;
    std::chrono::milliseconds bound = kRootsBound;
    for (const auto& unit : engine_.sources()) {
      for (const std::string& name : {unit->source->root(), engine_.OtherName(*unit)}) {
        if (!name.empty()) roots.push_back({name, unit->source->root_stat().dev, unit->source->root_stat().ino});
      }
      const abi::Staleness staleness = unit->options.staleness;
      if (staleness != abi::Staleness::kImmutable) bound = std::min(bound, std::chrono::milliseconds(staleness == abi::Staleness::kTtl ? unit->options.ttl_ms : 0));
    }
    root_watch_.Watch(std::move(roots), bound, [this](const std::string& path) {
      spdlog::error("source moved path={} reason=\"another directory is there now, or none\" action=\"tierd ends; start it again\"", path);
      exit_code_ = kTemporaryFailure;
      loop_.stop();
    });
  }

  void LoadPolicies() {
    if (resolved_.policy_directory.empty()) return;
    for (const Status& status : policies_.LoadDirectory(resolved_.policy_directory))
      if (!status.ok()) spdlog::warn("policy refused reason=\"{}\"", status.message());
  }

  void OnSignal(int signal_number) {
    if (signal_number != SIGHUP) return loop_.stop();
    if (!engine::Survives([this] { Reload(); })) std::fputs("tierd: out of memory while reloading\n", stderr);
  }

  void Reload() {
    service_manager_.Reloading();
    config_.Reload([this](const Result<server::ConfigHost::Applied>& applied) {
      if (applied.ok()) spdlog::info("reload applied={} restart={}", applied->applied.size(), applied->restart.size());
      else spdlog::error("reload refused, nothing changed: {}", applied.status().message());
      service_manager_.Ready();
    });
  }

  void Announce() {
    std::string sources;
    for (const auto& unit : engine_.sources()) sources += " source=" + unit->options.path;
    std::printf("tierd ready socket=%s control=%s metrics=%s ram=%lluM pages=%s ssd=%s%s\n", resolved_.socket.c_str(), resolved_.control_socket.c_str(),
                metrics_.address().empty() ? "off" : ("http://" + metrics_.address() + "/metrics").c_str(),
                static_cast<unsigned long long>(resolved_.engine.ram.capacity_bytes >> 20), ram::PageKindName(engine_.placement().page_kind()),
                resolved_.engine.ssd.directory.empty() ? "off" : resolved_.engine.ssd.directory.c_str(), Printable(sources).c_str());
    std::fflush(stdout);
  }

  const config::Resolved resolved_;
  SystemClock clock_;
  boost::asio::io_context loop_{1};
  policies::Registry policies_;
  engine::Engine engine_;
  server::SessionHub sessions_;
  ConfigService config_;
  server::ControlApi api_;
  server::Control control_;
  server::Metrics metrics_;
  ServiceManager service_manager_;
  EndGuard guard_;
  Lifeline lifeline_;
  RootWatch root_watch_;
  int exit_code_ = 0;
};

// Where a service manager has mounted the private tmpfs: a unit that may not make namespaces.
constexpr const char* kTmpfsVariable = "TIERD_PRIVATE_TMPFS";

// The memory that clients map. Without it segments are sealed memfds (HAZARDS 2.8).
Result<ram::PrivateTmpfs> MakePrivateTmpfs(const Result<UniqueFd>& user_namespace) {
  if (const char* directories = std::getenv(kTmpfsVariable)) {
    Result<ram::PrivateTmpfs> tmpfs = ram::PrivateTmpfs::Adopt(directories);
    if (tmpfs.ok()) return tmpfs;
    return Status(tmpfs.status().code(), std::string(kTmpfsVariable) + ": " + tmpfs.status().message());
  }
  Result<ram::PrivateTmpfs> tmpfs = ram::PrivateTmpfs::Create(user_namespace.ok() ? user_namespace->get() : -1);
  // Without privilege the mount fails because of the namespace that is missing.
  return tmpfs.ok() || user_namespace.ok() ? std::move(tmpfs) : user_namespace.status();
}

int Main(int argc, char** argv) {
  TuneAllocator();  // before there is a second thread
  CommandLine line;
  if (const int code = ParseCommandLine(argc, argv, &line); code >= 0) return code;
  if (Status status = Lifeline::Check(line.lifeline); !status.ok()) return Complain(status);
  auto config = LoadConfig(line);
  if (!config.ok()) return Complain(config.status());
  const Status checked = config::Check(*config, nullptr);
  if (!checked.ok() && !line.print_config) return Complain(checked);
  config::HostFacts host = config::CollectHost(*config, config::ProcessEnvironment());
  auto resolved = config::Resolve(*config, host);
  if (line.print_config) return PrintConfig(*config, checked, resolved);
  if (!resolved.ok()) return Complain(resolved.status());
  if (Status status = config::CheckRuntimePlace(*config, *resolved); !status.ok()) return Complain(status);
  if (line.check_config) return CheckStart(*config, *resolved);
  GoFirstWhenMemoryIsOut();  // while the files of /proc/self are still ours
  const Result<UniqueFd> user_namespace = ram::MakeUserNamespace();
  // From here on no other process of the user may take a descriptor or touch the memory of this one
  // (HAZARDS 2.8). Before, there is nothing to take.
  ::prctl(PR_SET_DUMPABLE, 0);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // under a limit of file sizes (ulimit -f) a region that does not fit is an error, not the end
  RaiseFileLimit();
  if (Status status = EnoughDescriptors(); !status.ok()) return Complain(status);
  GrowDescriptorTable();
  spdlog::set_default_logger(spdlog::stderr_logger_st("tierd"));
  auto lines = std::make_unique<spdlog::pattern_formatter>();
  lines->add_flag<PrintablePayload>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %*");
  spdlog::set_formatter(std::move(lines));
  spdlog::set_level(SpdlogLevel(resolved->log_level));
  const Result<ram::PrivateTmpfs> tmpfs = MakePrivateTmpfs(user_namespace);
  host.has_private_tmpfs = tmpfs.ok();
  if (!tmpfs.ok()) resolved = config::Resolve(*config, host);
  if (!resolved.ok()) return Complain(resolved.status());
  for (const std::string& note : resolved->option_notes) spdlog::warn("option {}", note);
  for (const std::string& note : resolved->notes) spdlog::log(resolved->ssd_taken ? spdlog::level::warn : spdlog::level::info, "{}", note);
  if (tmpfs.ok()) resolved->engine.ram.tmpfs = &*tmpfs;
  else resolved->engine.ram.no_tmpfs_reason = "no private tmpfs: " + tmpfs.status().message();
  const std::string no_tmpfs = resolved->engine.ram.no_tmpfs_reason;
  ConfigService::Inputs inputs{*std::move(config), line.overrides, std::filesystem::current_path().string(), host, *resolved};
  auto daemon = std::make_unique<Daemon>(std::move(inputs), line.lifeline);
  if (Status status = daemon->Start(); !status.ok()) return Complain(status);
  if (!tmpfs.ok()) spdlog::log(tmpfs.status().code() == Code::kUnsupported ? spdlog::level::info : spdlog::level::warn, "{}; memory returns by whole segments", no_tmpfs);
  const int code = daemon->Run();
  // Everything that must last is on its way to the disk. What is left are memory and threads, some of which may hang in a source or a disk; the
  // kernel takes all back at once, and no destructor waits for them or pulls memory from under them.
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace
}  // namespace tierd

int main(int argc, char** argv) {
  // Third-party code may throw (allocation, spdlog, Asio): the daemon then ends with one line, and clients go on with the source.
  try {
    return tierd::Main(argc, argv);
  } catch (const std::system_error& error) {
    const bool no_thread = error.code() == std::errc::resource_unavailable_try_again;
    std::fprintf(stderr, "tierd: %s%s%s\n", no_thread ? "no further thread: " : "", error.what(), no_thread ? "; raise the limit of processes (ulimit -u), or of memory (ulimit -d, -v)" : "");
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tierd: %s\n", error.what());
    return 1;
  }
}
