// jobs, wait, cancel, verify.
#include <ctime>

#include "tierctl/terminal/job_watch.h"
#include "tierctl/path_order.h"
#include "tierctl/client/paths.h"
#include "tierctl/verbs.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using nlohmann::json;
using tierd::config::HumanSize;

// Local time; with the date unless that is today's. Daemons of older releases do not say it.
std::string StartOf(const json& job) {
  const double started_s = RealOf(job, "started_s");
  if (started_s <= 0) return "-";
  const auto started = static_cast<std::time_t>(started_s);
  const std::time_t now = std::time(nullptr);
  std::tm then{}, today{};
  ::localtime_r(&started, &then);
  ::localtime_r(&now, &today);
  const bool is_today = then.tm_year == today.tm_year && then.tm_yday == today.tm_yday;
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, is_today ? "%H:%M:%S" : "%Y-%m-%d %H:%M", &then));
}

std::string OwnerOf(const json& job) {
  const std::string owner = TextOf(job, "owner");
  if (owner == "program") return NumberOf(job, "pid") == 0 ? "a program" : "process " + std::to_string(NumberOf(job, "pid"));
  return owner == "daemon" ? "tierd" : owner.empty() ? "-" : owner;
}

std::string PathsOf(const json& job) {
  const std::uint64_t paths = NumberOf(job, "paths");
  return paths == 0 ? "-" : Escaped(PathOf(job)) + (paths > 1 ? " and " + std::to_string(paths - 1) + " more" : "");
}

std::string JobTable(const json& jobs) {
  Table table(1);
  table.Row({"JOB", "KIND", "BY", "STATE", "STARTED", "TIME", "FILES", "BYTES", "VERIFIED", "FAILED", "NO ROOM", "PATH", "ERROR"});
  for (const json& job : jobs) {
    const std::string total = std::to_string(NumberOf(job, "files_total")) + (FlagOf(job, "walking") ? "+" : "");
    const std::uint64_t expected = NumberOf(job, "files_expected");
    table.Row({std::to_string(NumberOf(job, "id")), TextOf(job, "kind"), OwnerOf(job), TextOf(job, "state"), StartOf(job), Span(RealOf(job, "elapsed_s")),
               std::to_string(NumberOf(job, "files_done")) + "/" + total, BytesOf(job),
               expected == 0 ? "-" : std::to_string(NumberOf(job, "files_verified")) + "/" + std::to_string(expected), std::to_string(NumberOf(job, "files_failed")),
               std::to_string(NumberOf(job, "files_no_room")), PathsOf(job), Escaped(TextOf(job, "error"))});
  }
  return table.Text();
}

void PrintJobs(Context& context, const json& jobs) {
  if (context.output.json()) {
    context.output.PrintJson({{"jobs", jobs}});
  } else {
    context.output.Print(JobTable(jobs));
  }
}

// Several jobs, run one after the other, as one. The state is that of the first that fell short, the start that of the first, the id that of the last.
void AddJob(json& sum, json job) {
  if (sum.is_null()) {
    sum = std::move(job);
    return;
  }
  for (const auto& [name, value] : job.items()) {
    json& member = sum[name];
    if (name == "id" || value.is_null()) member = value;
    else if (name == "started_s" || name == "pid") continue;
    else if (name == "state" ? member == "done" : name == "error" && member == "") member = value;
    else if (value.is_number_unsigned() && member.is_number_unsigned()) member = member.get<std::uint64_t>() + value.get<std::uint64_t>();
    else if (value.is_number() && member.is_number()) member = member.get<double>() + value.get<double>();
  }
}

}  // namespace

int ListJobs(Context& context) {
  const Answer answer = context.client.Get("/v1/jobs");
  if (!answer.ok()) return context.output.Fail(answer);
  const json& all = ListOf(answer.body, "jobs");
  if (context.output.json()) {
    PrintJobs(context, all);
    return kExitOk;
  }
  // A loop that looks ahead starts a job for each few files: they are counted, not listed.
  json listed = json::array();
  std::uint64_t of_programs = 0, running = 0;
  for (const json& job : all) {
    if (TextOf(job, "owner") != "program") {
      listed.push_back(job);
      continue;
    }
    ++of_programs;
    running += TextOf(job, "state") == "running" ? 1 : 0;
  }
  PrintJobs(context, listed);
  if (of_programs != 0)
    context.output.Print("and " + Plural(of_programs, "job") + " of programs, " + std::to_string(running) + " running (--json lists them)\n");
  return kExitOk;
}

int WaitJobs(Context& context) {
  std::vector<std::uint64_t> known;
  int exit_code = kExitOk;
  for (const std::uint64_t id : context.command.jobs) {
    const Answer answer = context.client.Get("/v1/jobs/" + std::to_string(id));
    if (answer.exit == kExitUnreachable) return context.output.Fail(answer);
    if (answer.ok()) known.push_back(id);
    else exit_code = context.output.Fail(answer);
  }
  if (known.empty()) return exit_code;
  std::vector<json> jobs;
  const Answer watched = WatchJobs(context.client, context.output, known, &jobs);
  if (!watched.ok()) return context.output.Fail(watched);
  JobSum sum;
  for (const json& job : jobs) sum.Add(job);
  PrintJobs(context, jobs);
  return sum.complete() ? PartlyDone(exit_code, true) : kExitPartial;
}

int CancelJobs(Context& context) {
  json jobs = json::array();
  int exit_code = kExitOk;
  for (const std::uint64_t id : context.command.jobs) {
    const Answer answer = context.client.Delete("/v1/jobs/" + std::to_string(id));
    if (answer.exit == kExitUnreachable) return context.output.Fail(answer);
    if (answer.ok()) {
      jobs.push_back(answer.body);
    } else {
      exit_code = context.output.Fail(answer);
    }
  }
  if (!jobs.empty() || context.output.json()) PrintJobs(context, jobs);
  return PartlyDone(exit_code, !jobs.empty());
}

int Verify(Context& context) {
  PathOrder order(context);
  order.RefuseAbsent(PathOrder::Absent::kRefusedIfUnknown);
  json job;
  // One after the other: each looks at every record.
  const auto verify = [&](const json& body) {
    Answer started = context.client.Post("/v1/verify", body);
    if (!started.ok()) return started;
    std::vector<json> ended;
    Answer watched = WatchJobs(context.client, context.output, {NumberOf(started.body, "job")}, &ended);
    if (watched.ok()) AddJob(job, std::move(ended.front()));
    return watched;
  };
  const Answer verified = context.command.paths.empty() ? verify(json::object())
                                                        : order.Send(kBatchPaths, [&](const json& paths, std::span<const std::size_t>) { return verify({{"paths", paths}}); });
  if (!verified.ok()) return context.output.Fail(verified);
  if (job.is_null()) return order.ExitCode(false);
  const std::uint64_t bad = NumberOf(job, "files_failed");
  if (context.output.json()) {
    context.output.PrintJson(job);
  } else {
    context.output.Print(Plural(NumberOf(job, "files_verified"), "record") + " good, " + HumanSize(NumberOf(job, "bytes_verified")) + "; " + std::to_string(bad) + " bad\n");
  }
  if (bad != 0) return context.output.Fail(kExitPartial, "bad records were dropped: their next read goes to the source; is the disk failing? (tierctl status, dmesg)");
  if (TextOf(job, "state") != "done") return context.output.Fail(kExitPartial, "not everything was checked: " + TextOf(job, "state") + (TextOf(job, "error").empty() ? "" : ": " + TextOf(job, "error")));
  return order.ExitCode(true);
}

}  // namespace tierctl
