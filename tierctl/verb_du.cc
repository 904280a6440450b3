// du: how much of a tree is cached. Lists first what has not been listed.
#include "tierctl/terminal/job_watch.h"
#include "tierctl/client/paths.h"
#include "tierctl/verbs.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using nlohmann::json;
using tierd::config::HumanSize;

// The sums of a path, after a walk if one is needed and wanted.
Answer Sums(Context& context, const std::string& path) {
  Answer answer = context.client.GetPath("/v1/du", path);
  if (!answer.ok() || TextOf(answer.body, "walk") == "complete" || context.command.no_walk) return answer;
  std::uint64_t job = NumberOf(answer.body, "job");
  if (job == 0) {
    const Answer started = context.client.Post("/v1/walk", {{"paths", json::array({PathJson(path)})}});
    if (!started.ok()) return started;
    job = NumberOf(started.body, "job");
  }
  std::vector<json> jobs;
  const Answer watched = WatchJobs(context.client, context.output, {job}, &jobs);
  if (!watched.ok()) return watched;
  if (TextOf(jobs[0], "state") != "done" && WhyAbsent(path).empty()) {
    const std::string error = TextOf(jobs[0], "error");
    context.output.Message(path + ": could not be listed wholly" + (error.empty() ? "" : ": " + error));
  }
  return context.client.GetPath("/v1/du", path);
}

}  // namespace

int DiskUse(Context& context) {
  json rows = json::array();
  int exit_code = kExitOk;
  bool complete = true;
  Table table(6);
  table.Row({"SIZE", "RAM", "SSD", "MISSING", "FILES", "MISSING FILES", "PATH"});
  for (const std::string& given : context.command.paths) {
    const std::string path = AbsolutePath(given, context.working_directory);
    const Answer answer = Sums(context, path);
    if (answer.exit == kExitUnreachable) return context.output.Fail(answer);
    if (!answer.ok()) {
      exit_code = context.output.Fail(answer);
      continue;
    }
    const json& sums = answer.body;
    if (const std::string absent = NumberOf(sums, "files") == 0 ? WhyAbsent(path) : ""; !absent.empty()) {
      exit_code = context.output.Fail(kExitError, absent);
      continue;
    }
    const std::uint64_t size = NumberOf(sums, "size_bytes");
    complete = complete && TextOf(sums, "walk") == "complete";
    rows.push_back(sums);
    table.Row({HumanSize(size), Percent(NumberOf(sums, "ram_bytes"), size), Percent(NumberOf(sums, "ssd_bytes"), size), HumanSize(NumberOf(sums, "missing_bytes")),
               std::to_string(NumberOf(sums, "files")), std::to_string(NumberOf(sums, "files_missing")), context.output.Name(PathOf(sums))});
  }
  if (context.output.json()) {
    context.output.PrintJson({{"paths", rows}});
  } else if (!rows.empty()) {
    context.output.Print(table.Text());
  }
  if (!complete) context.output.Message("these are sums of what is known so far, not of everything at the source");
  return exit_code != kExitOk ? PartlyDone(exit_code, !rows.empty()) : complete || context.command.no_walk ? kExitOk : kExitPartial;
}

}  // namespace tierctl
