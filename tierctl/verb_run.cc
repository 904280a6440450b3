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
#include "tierctl/client/paths.h"
#include "tierctl/terminal/progress.h"
#include "tierctl/run/command.h"
#include "tierctl/run/job_daemon.h"
#include "tierctl/run/ledger.h"
#include "tierctl/run/option_notes.h"
#include "tierctl/run/place.h"
#include "tierctl/run/scratch.h"
#include "tierctl/run/share.h"
#include "tierctl/run/summary.h"
#include "tierctl/run/wrong_option.h"
#include "tierctl/client/socket_path.h"
#include "tierctl/verbs.h"

namespace tierctl {
namespace {

using nlohmann::json;
using tierd::config::GetEnvironment;

// Within which a daemon says how it is, or counts as one that does not answer: a job does not stand still for that.
constexpr int kAnswerMs = 3'000;
constexpr off_t kChildrenBytes = 4096;

// Runs start their daemons one after the other. Who waits longer goes on as if it were alone.
constexpr int kTurnMs = 30'000, kLastTurnMs = 200;

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
    daemon_options_ = {sources_, options_.ram, options_.ssd.empty() || options_.ssd == "off" ? options_.ssd : AbsolutePath(options_.ssd, context_.working_directory), options_.policy, ""};
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
    if (const std::string open = run::OpenToOthers(environment_); !open.empty())
      context_.output.Message("run: " + open + " passed over: others may rename what is in it; chmod +t, or a directory of your own, helps");
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

  // One that another run of this job has started here, or one of our own, beside those that are here.
  bool StartOwn() {
    if (!scratch_) return Without(no_scratch_);
    const auto [binary, why_not] = run::FindDaemon(environment_);
    if (binary.empty()) return Without(why_not);
    run::DaemonRecord record{run::OwnIdentity(environment_), binary, daemon_options_, options_.keep, true, true, scratch_->path(), scratch_->short_path(), scratch_->socket(),
                             ControlBeside(scratch_->socket()), run::LifelineIn(*scratch_)};
    std::optional<run::Ledger> ledger = run::Ledger::Open(run::LedgerBase(environment_), ::geteuid(), kTurnMs);
    const std::vector<run::Ledger::Entry> others = ledger ? ledger->Live() : std::vector<run::Ledger::Entry>();
    if (ledger && Join(*ledger, others, record)) return true;
    const run::Share share = run::Divide(others, daemon_options_, run::SsdPlace(daemon_options_, *scratch_), record.identity, environment_);
    if (!share.said.empty() && !options_.quiet) context_.output.Message("run: " + share.said);
    record.ram_auto = share.ram_auto;
    record.ssd_auto = share.ssd_auto;
    if (daemon_options_.ram.empty()) daemon_options_.ram = share.ram;
    daemon_options_.ssd_capacity = share.ssd_capacity;
    if (share.without_ssd) daemon_options_.ssd = "off";
    record_name_ = std::filesystem::path(scratch_->path()).filename().string();
    const tierd::UniqueFd held = ledger ? ledger->Add(record_name_, record) : tierd::UniqueFd();
    std::optional<Progress> progress(std::in_place, context_.output);
    const auto waiting = [&progress] { progress->Show([] { return std::string("run: starting tierd"); }); };
    auto daemon = run::JobDaemon::Start(binary, daemon_options_, *scratch_, held.get(), waiting);
    if (!daemon.ok() && daemon_options_.ssd.starts_with('/')) {
      // Another job may have that directory; if it is not the reason, the second start says what is.
      const std::string ssd = std::exchange(daemon_options_.ssd, ""), why = daemon.status().message();
      daemon_options_.ssd_capacity.clear();  // that was a share of its disk
      daemon = run::JobDaemon::Start(binary, daemon_options_, *scratch_, held.get(), waiting);
      if (daemon.ok()) context_.output.Message("run: without " + ssd + ": " + why);
    }
    progress.reset();  // erased before the command begins
    if (!daemon.ok()) {
      if (ledger) ledger->Remove(record_name_);
      return Without(daemon.status().message());
    }
    facts_.own_daemon = true;
    Use(std::move(daemon).value(), record);
    return true;
  }

  static std::string ControlBeside(const std::string& socket) { return socket.substr(0, socket.rfind('/') + 1) + "control.sock"; }

  void Use(run::JobDaemon daemon, const run::DaemonRecord& record) {
    daemon_ = std::move(daemon);
    socket_ = record.socket;
    control_ = record.control;
    line_.inherited_fd = daemon_->lifeline();
  }

  // Uses the daemon of another run of this job, if there is one with the same options.
  bool Join(const run::Ledger& ledger, const std::vector<run::Ledger::Entry>& others, const run::DaemonRecord& wanted) {
    if (wanted.identity.job.empty()) return false;
    std::string difference;
    for (const run::Ledger::Entry& other : others) {
      if (!(other.record.identity == wanted.identity)) continue;
      std::string why = run::Difference(other.record, wanted);
      if (why.empty() && Hold(other.record, &why)) {
        ledger.MarkJoined(other.name);
        if (!options_.quiet) context_.output.Message("run: joined the cache that another run of " + wanted.identity.job + " has started here");
        joined_ = other.record;
        return true;
      }
      if (difference.empty()) difference = why;
    }
    if (!difference.empty()) context_.output.Message("run: a cache of its own beside that of another run of " + wanted.identity.job + ": " + difference);
    return false;
  }

  // It stays as long as we hold its lifeline. What it answers after that holds.
  bool Hold(const run::DaemonRecord& there, std::string* why) {
    auto daemon = run::JobDaemon::Join(there.lifeline, there.scratch);
    if (!daemon.ok()) return *why = daemon.status().message(), false;
    ControlClient client(there.control);
    client.WaitAtMost(kAnswerMs);
    const Answer answer = client.Get("/v1/status");
    if (!answer.ok()) return *why = answer.message, false;
    if (!Covers(answer.body, sources_)) return *why = "it has another --source", false;
    daemon->IsProcess(static_cast<pid_t>(NumberOf(answer.body, "pid")));
    Use(std::move(daemon).value(), there);
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
    NoteOptions();
    NameRoots();
    if (options_.no_preload) return;
    const std::string library = Preloadable(run::FindPreload(environment_));
    if (library.empty()) return;
    const std::string others = environment_("LD_PRELOAD").value_or("");
    // A sanitizer's runtime must stay first.
    if (others.find(library) == std::string::npos) line_.environment.emplace_back("LD_PRELOAD", others.empty() ? library : others + ":" + library);
    report_ = MakeReport();
    if (!report_.empty()) line_.environment.emplace_back("TIERD_REPORT", report_);
    if (MakeChildren()) line_.environment.emplace_back("TIERD_CHILDREN", scratch_->children());
    if (options_.real_fds) line_.environment.emplace_back("TIERD_REAL_FDS", "1");
  }

  // Of a daemon of our own: another one has options of somebody else.
  void NoteOptions() {
    if (!facts_.own_daemon) return;
    facts_.option_notes = run::OptionNotes(options_, facts_.before);
    for (const std::string& note : facts_.option_notes) context_.output.Message("run: " + note);
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
  std::string Preloadable(const run::Place& place) {
    constexpr char kParts[] = " :";
    const std::string& library = place.path;
    if (library.empty()) {
      Without(place.why);
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

  // All zero: no such process yet (client_lib/preload/foreign.h).
  bool MakeChildren() const {
    if (!scratch_) return false;
    const tierd::UniqueFd fd(::open(scratch_->children().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    return fd.valid() && ::ftruncate(fd.get(), kChildrenBytes) == 0;
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
    // One that other runs used, too, speaks of all of them.
    if (facts_.own_daemon && run::Ledger::WasJoined(run::LedgerBase(environment_), ::geteuid(), record_name_)) facts_.own_daemon = false;
    const json summary = run::Summary(facts_);
    if (!options_.report.empty()) {
      errno = 0;
      std::ofstream out(ReportPath());
      out << summary.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
      if (out.flush()) return;
      context_.output.Message("run: cannot write " + options_.report + ": " + std::strerror(errno != 0 ? errno : EIO));
    }
    if (!options_.quiet) ::dprintf(STDERR_FILENO, "%s", Painted(run::SummaryText(summary), TextOf(summary, "advice")).c_str());
  }

  // The last line is the advice. Its colour tells whether there is something to do.
  std::string Painted(std::string text, const std::string& advice) const {
    const std::size_t at = text.rfind('\n', text.size() - 2) + 1;
    const Palette& palette = context_.output.message_palette();
    const std::string line = text.substr(at, text.size() - at - 1);
    const bool well = advice.starts_with("nothing to improve");
    return text.substr(0, at) + (well ? palette.Good(line) : palette.Attention(line)) + "\n";
  }

  std::string ReportPath() const { return options_.report.empty() ? "" : AbsolutePath(options_.report, context_.working_directory); }

  void End() {
    if (daemon_) daemon_->LetGo();
    if (scratch_) scratch_->Remove();
    if (joined_ && !joined_->keep) {  // of a run that is gone, perhaps: the last one tidies up
      for (const std::string& left : {joined_->scratch, joined_->short_scratch})
        if (!left.empty()) run::RemoveLeftOver(left);
    }
    if (!daemon_) return;
    if (auto ledger = run::Ledger::Open(run::LedgerBase(environment_), ::geteuid(), kLastTurnMs)) ledger->RemoveIfEmpty();
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
  std::string record_name_;                   // of a daemon of our own, in the ledger
  std::optional<run::DaemonRecord> joined_;  // whose daemon another run has started
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
