// tierctl: the command line of tierd. Builds the objects, runs one verb, leaves with its exit code.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "tierctl/cli.h"
#include "tierctl/client/socket_path.h"
#include "tierctl/verbs.h"

namespace {

using tierctl::Context;

int RunVerb(const std::string& verb, Context& context) {
  using Run = int (*)(Context&);
  static const std::map<std::string, Run> verbs = {
      {"status", tierctl::Status},       {"version", tierctl::Version},      {"ls", tierctl::List},           {"stat", tierctl::Stat},
      {"explain", tierctl::Explain},     {"du", tierctl::DiskUse},           {"prefetch", tierctl::Prefetch}, {"verify", tierctl::Verify},
      {"jobs", tierctl::ListJobs},       {"wait", tierctl::WaitJobs},        {"cancel", tierctl::CancelJobs}, {"evict", tierctl::Evict},
      {"pin", tierctl::Pin},             {"unpin", tierctl::Unpin},          {"config get", tierctl::ConfigGet},
      {"config set", tierctl::ConfigSet}, {"config reload", tierctl::ConfigReload}, {"doctor", tierctl::Doctor},
      {"metrics", tierctl::Metrics},     {"top", tierctl::Top},              {"debug bundle", tierctl::DebugBundle},
      {"policy list", tierctl::PolicyList}, {"policy show", tierctl::PolicyShow}, {"policy set", tierctl::PolicySet},
      {"policy try", tierctl::PolicyTry}, {"policy prioritize", tierctl::PolicyPrioritize}, {"trace start", tierctl::TraceStart}, {"trace stop", tierctl::TraceStop},
      {"plan torch-distributed", tierctl::PlanTell}, {"plan sequential", tierctl::PlanTell}, {"plan tell", tierctl::PlanTell},
      {"plan list", tierctl::PlanList},  {"plan remove", tierctl::PlanRemove},
      {"run", tierctl::Run},             {"simulate", tierctl::Simulate},
      {"bench", tierctl::Bench},         {"gc", tierctl::CollectGarbage}};
  return verbs.at(verb)(context);
}

// Verbs that order nothing. Those that watch jobs are not among them: a job does not end because the daemon stood still for a while.
bool OnlyLooks(const std::string& verb) {
  static const std::set<std::string> verbs = {"status", "version", "ls", "stat", "explain", "jobs", "config get", "metrics", "top", "policy list", "policy show", "plan list"};
  return verbs.contains(verb);
}

// What is longer than stdio's buffer failed before the end.
int WithAllWritten(tierctl::Output output, int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return output.Fail(tierctl::kExitError, "cannot write to stdout");
}

}  // namespace

int main(int argc, char** argv) {
  const tierctl::Parsed parsed = tierctl::ParseCommandLine(argc, argv);
  if (!parsed.command) {
    std::fputs(parsed.text.c_str(), stdout);
    if (!parsed.complaint.empty()) tierctl::Output(false).Message(parsed.complaint);
    return WithAllWritten(tierctl::Output(false), parsed.exit_code);
  }
  std::error_code ignored;
  const tierctl::Color color = parsed.command->color == "always" ? tierctl::Color::kAlways : parsed.command->color == "never" ? tierctl::Color::kNever : tierctl::Color::kAuto;
  tierctl::Output output(parsed.command->json, color);
  tierctl::ControlClient client(tierctl::FindControlSocket(parsed.command->socket, tierd::config::ProcessEnvironment(), ::geteuid()));
  if (OnlyLooks(parsed.command->verb)) client.WaitAtMost(tierctl::ControlClient::kLookMs);
  Context context{*parsed.command, client, output, std::filesystem::current_path(ignored).string()};
  return WithAllWritten(output, RunVerb(parsed.command->verb, context));
}
