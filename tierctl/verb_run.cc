// run: a command with its reads served from the cache, by the daemon that is there or by one of its own.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "client_lib/src/settings.h"
#include "tierctl/paths.h"
#include "tierctl/run/command.h"
#include "tierctl/run/job_daemon.h"
#include "tierctl/run/place.h"
#include "tierctl/run/scratch.h"
#include "tierctl/run/summary.h"
#include "tierctl/run/wrong_option.h"
#include "tierctl/socket_path.h"
#include "tierctl/verbs.h"

namespace tierctl {
namespace {

using nlohmann::json;
using tierd::config::GetEnvironment;

// Within which a daemon says how it is, or counts as one that does not answer: a job does not stand still for that.
constexpr int kAnswerMs = 3'000;

bool IsOn(const std::optional<std::string>& value) { return value && !value->empty() && *value != "0"; }

bool Covers(const json& status, const std::vector<std::string>& wanted) {
  for (const std::string& path : wanted) {
    bool found = false;
    for (const json& source : ListOf(status, "sources")) {
      const std::string root = PathOf(source);
      found = found || path == root || path.starts_with(root.ends_with('/') ? root : root + "/");
    }
    if (!found) return false;
  }
  return true;
}

// One job: what it runs with, and what is undone afterwards.
class Job {
 public:
  Job(Context& context, GetEnvironment environment) : context_(context), options_(context.command.run), environment_(std::move(environment)) {
    for (const std::string& source : options_.sources) sources_.push_back(AbsolutePath(source, context.working_directory));
    daemon_options_ = {sources_, options_.ram, options_.ssd.empty() || options_.ssd == "off" ? options_.ssd : AbsolutePath(options_.ssd, context_.working_directory), options_.policy};
    line_.arguments = options_.arguments;
  }

  int Run() {
    if (const std::string wrong = run::WrongOption(daemon_options_, environment_); !wrong.empty()) return context_.output.Fail(kExitUsage, "run: " + wrong + " (tierctl run --help)");
    if (const std::string wrong = run::WrongReport(ReportPath()); !wrong.empty()) return context_.output.Fail(kExitUsage, "run: --report: " + wrong + " (tierctl run --help)");
    MakeScratch();
    UseWhatIsThere() || StartOwn();
    Prepare();
    const auto began = std::chrono::steady_clock::now();
    const run::Ended ended = run::RunCommand(line_, own_signals_);
    facts_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    facts_.exit_code = ended.exit_code;
    facts_.signal_number = ended.signal_number;
    Tell();
    End();
    if (ended.signal_number != 0) run::EndBySignal(ended.signal_number);
    return ended.exit_code;
  }

 private:
  // Also where a daemon is there already: the reports of the job's processes lie in it.
  void MakeScratch() {
    if (const std::string passed = run::PassedOver(environment_); !passed.empty()) context_.output.Message("run: " + passed + " passed over: a control character (a newline?) in the name");
    auto scratch = run::Scratch::Make(environment_, ::geteuid(), options_.keep, sources_);
    if (scratch.ok()) scratch_ = std::move(scratch).value();
    else no_scratch_ = scratch.status().message();
  }

  // The user's daemon, or that of a run around this one, if it knows the sources that this one wants, and no own tiers are asked for.
  bool UseWhatIsThere() {
    if (!options_.ram.empty() || !options_.ssd.empty() || !options_.policy.empty() || options_.keep) return false;
    context_.client.WaitAtMost(kAnswerMs);
    const Answer answer = context_.client.Get("/v1/status");
    if (!answer.ok() || !Covers(answer.body, sources_)) return false;
    control_ = context_.client.socket();
    socket_ = ClientSocketOf(control_, context_.command.socket, environment_);
    return true;
  }

  bool StartOwn() {
    if (!scratch_) return Without(no_scratch_);
    const std::string binary = run::FindDaemon(environment_);
    if (binary.empty()) return Without("there is no tierd beside this tierctl");
    auto daemon = run::JobDaemon::Start(binary, daemon_options_, *scratch_);
    if (!daemon.ok() && daemon_options_.ssd.starts_with('/')) {
      // Another job may have that directory; if it is not the reason, the second start says what is.
      const std::string ssd = std::exchange(daemon_options_.ssd, ""), why = daemon.status().message();
      daemon = run::JobDaemon::Start(binary, daemon_options_, *scratch_);
      if (daemon.ok()) context_.output.Message("run: without " + ssd + ": " + why);
    }
    if (!daemon.ok()) return Without(daemon.status().message());
    daemon_ = std::move(daemon).value();
    facts_.own_daemon = true;
    socket_ = scratch_->socket();
    control_ = socket_.substr(0, socket_.rfind('/') + 1) + "control.sock";
    line_.inherited_fd = daemon_->lifeline();
    return true;
  }

  // The cache never keeps a job from running.
  bool Without(std::string why) {
    if (why.find(std::strerror(EFBIG)) != std::string::npos) why += " (see ulimit -f)";
    context_.output.Message("run: without a cache: " + why);
    facts_.without = std::move(why);
    return false;
  }

  void Prepare() {
    facts_.preload = !options_.no_preload;
    if (options_.no_preload) LeaveOutPreload();
    rlimit space;
    facts_.limited_space = ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
    if (socket_.empty()) return;
    line_.environment.emplace_back("TIERD_SOCKET", socket_);
    facts_.before = AskStatus();
    NameRoots();
    if (options_.no_preload) return;
    const std::string library = Preloadable(run::FindPreload(environment_));
    if (library.empty()) return;
    const std::string others = environment_("LD_PRELOAD").value_or("");
    // A sanitizer's runtime must stay first.
    if (others.find(library) == std::string::npos) line_.environment.emplace_back("LD_PRELOAD", others.empty() ? library : others + ":" + library);
    report_ = MakeReport();
    if (!report_.empty()) line_.environment.emplace_back("TIERD_REPORT", report_);
    if (options_.real_fds) line_.environment.emplace_back("TIERD_REAL_FDS", "1");
  }

  // For processes that look which files are a source's before they have connected. One that the list cannot hold would be none: then there is no list.
  void NameRoots() {
    std::vector<std::string> names;
    for (const json& source : ListOf(facts_.before, "sources")) names.push_back(PathOf(source));
    for (const json& source : ListOf(facts_.before, "sources"))
      for (const json& name : ListOf(source, "other_names")) names.push_back(PathOf(name));
    std::string roots;
    bool fits = names.size() <= tierd::client::Prefixes::kMax;
    for (const std::string& name : names) {
      fits = fits && name.find(':') == std::string::npos;
      if (!name.empty()) roots += (roots.empty() ? "" : ":") + name;
    }
    fits = fits && roots.size() < sizeof tierd::client::Settings::prefix_text;
    // What the user chose stays; what a run around this one set is replaced.
    const auto prefix = environment_("TIERD_PREFIX");
    if (roots.empty() || (prefix && prefix != environment_("TIERD_RUN_PREFIX"))) return;
    for (const char* variable : {"TIERD_PREFIX", "TIERD_RUN_PREFIX"}) {
      if (fits) line_.environment.emplace_back(variable, roots);
      else if (prefix) line_.removed.push_back(variable);
    }
  }

  // The library by a name that LD_PRELOAD can hold, where blanks and colons part names: a link in the scratch directory, if need be. "": there is none.
  std::string Preloadable(const std::string& library) {
    constexpr char kParts[] = " :";
    if (library.empty()) {
      Without("there is no libtier_preload.so beside this tierctl");
      return "";
    }
    if (library.find_first_of(kParts) == std::string::npos) return library;
    const std::string link = scratch_ ? scratch_->path() + "/libtier_preload.so" : "";
    const std::string what = "the dynamic linker cannot preload " + library + " (a blank or a colon in its name)";
    if (!scratch_ || link.find_first_of(kParts) != std::string::npos) {
      Without(what + (scratch_ ? ", nor a link in " + scratch_->path() + ": set TMPDIR" : "; " + no_scratch_));
      return "";
    }
    ::unlink(link.c_str());  // of an earlier --keep
    if (::symlink(library.c_str(), link.c_str()) == 0) return link;
    Without(what + "; " + link + ": " + std::strerror(errno));
    return "";
  }

  // A run around this one has set it up.
  void LeaveOutPreload() {
    std::string others;
    std::istringstream libraries(environment_("LD_PRELOAD").value_or(""));
    bool ours = false;
    for (std::string library; std::getline(libraries, library, ':');) {
      const bool is_ours = library.ends_with("/libtier_preload.so");
      ours |= is_ours;
      if (!is_ours && !library.empty()) others += (others.empty() ? "" : ":") + library;
    }
    if (!ours) return;
    if (others.empty()) line_.removed.push_back("LD_PRELOAD");
    else line_.environment.emplace_back("LD_PRELOAD", others);
    line_.removed.push_back("TIERD_REPORT");
  }

  // An empty file for the lines of the job's processes; "": there can be none.
  std::string MakeReport() const {
    if (!scratch_) return "";
    const tierd::UniqueFd fd(::open(scratch_->reads().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    return fd.valid() ? scratch_->reads() : "";
  }

  json AskStatus() const {
    ControlClient client(control_);
    client.WaitAtMost(kAnswerMs);
    const Answer answer = client.Get("/v1/status");
    return answer.ok() ? answer.body : json();
  }

  void Tell() {
    facts_.reports = report_.empty() ? json::object() : run::AddUpReports(report_);
    if (!socket_.empty()) facts_.after = AskStatus();
    if (daemon_) facts_.daemon_signal = daemon_->KilledBy();
    const json summary = run::Summary(facts_);
    if (!options_.report.empty()) {
      errno = 0;
      std::ofstream out(ReportPath());
      out << summary.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
      if (out.flush()) return;
      context_.output.Message("run: cannot write " + options_.report + ": " + std::strerror(errno != 0 ? errno : EIO));
    }
    if (!options_.quiet) ::dprintf(STDERR_FILENO, "%s", run::SummaryText(summary).c_str());
  }

  std::string ReportPath() const { return options_.report.empty() ? "" : AbsolutePath(options_.report, context_.working_directory); }

  void End() {
    if (daemon_) daemon_->LetGo();
    if (scratch_) scratch_->Remove();
  }

  Context& context_;
  const RunOptions& options_;
  const GetEnvironment environment_;
  const run::OwnSignals own_signals_;
  std::vector<std::string> sources_;
  run::DaemonOptions daemon_options_;
  std::string socket_;   // that clients connect to; "": no cache
  std::string control_;  // of the same daemon
  std::string report_;
  std::string no_scratch_;  // why there is none
  std::optional<run::Scratch> scratch_;
  std::optional<run::JobDaemon> daemon_;
  run::CommandLine line_;
  run::JobFacts facts_;
};

}  // namespace

int Run(Context& context) {
  run::HoldStandardStreams();
  const GetEnvironment environment = tierd::config::ProcessEnvironment();
  if (IsOn(environment("TIERD_DISABLE"))) return run::BecomeCommand({context.command.run.arguments, {}, {}, -1});
  return Job(context, environment).Run();
}

}  // namespace tierctl
