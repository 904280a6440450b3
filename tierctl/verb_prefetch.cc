// prefetch: sends paths in batches, and with --wait tells the truth about what is there at the end.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <thread>

#include "tierctl/terminal/job_watch.h"
#include "tierctl/path_order.h"
#include "tierctl/client/paths.h"
#include "tierctl/verbs.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using nlohmann::json;

// Jobs of one call that run at a time: enough to keep the daemon busy, few enough to leave room for others.
constexpr std::size_t kJobsAtATime = 8;

tierd::Status ReadList(const Command& command, PathOrder* order) {
  std::ifstream file;
  if (command.list_file != "-") {
    file.open(command.list_file, std::ios::binary);
    if (!file) return tierd::Status(tierd::Code::kNotFound, command.list_file + ": " + std::strerror(errno));
  }
  std::istream& in = command.list_file == "-" ? std::cin : file;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line, command.null_separated ? '\0' : '\n');) {
    ++number;
    if (!line.empty()) order->Add(line, number);
  }
  if (in.bad()) return tierd::Status(tierd::Code::kIo, command.list_file + ": cannot be read to its end");
  return tierd::Status::Ok();
}

Answer StartJob(Context& context, const json& paths) {
  const Command& command = context.command;
  const json body = {{"paths", paths}, {"tier", command.tier}, {"pin", command.pin}, {"evict", !command.keep}};
  // Too many jobs of others: our turn comes.
  for (int tries = 0;; ++tries) {
    Answer answer = context.client.Post("/v1/prefetch", body);
    if (answer.code != "busy" || tries == 100) return answer;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

std::string Summary(const JobSum& sum) {
  std::string text = "verified " + std::to_string(sum.files_verified) + " of " + Plural(sum.files_expected, "file") + ", " + tierd::config::HumanSize(sum.bytes_verified) +
                     ", in " + Span(sum.elapsed_s);
  if (sum.elapsed_s > 0) {
    char rate[64];
    std::snprintf(rate, sizeof rate, ": %.0f files/s, ", static_cast<double>(sum.files_done) / sum.elapsed_s);
    text += rate + tierd::config::HumanSize(static_cast<std::uint64_t>(static_cast<double>(sum.bytes_done) / sum.elapsed_s)) + "/s";
  }
  return text;
}

std::string Shortfall(const JobSum& sum) {
  std::string text = "short:";
  if (sum.files_failed != 0) text += " " + Plural(sum.files_failed, "file") + " could not be read;";
  if (sum.files_no_room != 0) text += " " + Plural(sum.files_no_room, "file") + " found no room (tierctl status shows the tiers);";
  if (sum.files_verified < sum.files_expected) text += " " + Plural(sum.files_expected - sum.files_verified, "file") + " not wholly in a tier at the end;";
  if (sum.cut_short) text += " a job did not run to its end;";
  text.back() = '.';
  return sum.first_error.empty() ? text : text + " First: " + sum.first_error;
}

json Document(const std::vector<json>& jobs, const JobSum& sum, bool complete) {
  return {{"jobs", jobs},
          {"files_expected", sum.files_expected},
          {"files_verified", sum.files_verified},
          {"bytes_verified", sum.bytes_verified},
          {"elapsed_s", sum.elapsed_s},
          {"complete", complete}};
}

int Report(Context& context, const std::vector<json>& jobs, double elapsed_s, bool refused) {
  JobSum sum;
  for (const json& job : jobs) sum.Add(job);
  sum.elapsed_s = std::max(sum.elapsed_s, elapsed_s);
  if (context.output.json()) {
    context.output.PrintJson(Document(jobs, sum, sum.complete() && !refused));
  } else {
    context.output.Print(Summary(sum) + "\n");
  }
  if (sum.complete()) return kExitOk;
  return context.output.Fail(kExitPartial, Shortfall(sum));
}

// Who interrupts the wait is told what goes on without it, and how to end that too. One at a time.
class InterruptNote {
 public:
  explicit InterruptNote(const std::vector<std::uint64_t>& jobs) {
    text = (jobs.size() == 1 ? "\ntierctl: job" : "\ntierctl: jobs");
    for (const std::uint64_t job : jobs) text += " " + std::to_string(job);
    text += (jobs.size() == 1 ? " goes on; tierctl cancel" : " go on; tierctl cancel");
    for (const std::uint64_t job : jobs) text += " " + std::to_string(job);
    text += jobs.size() == 1 ? " ends it\n" : " ends them\n";
    struct sigaction now {};
    if (::sigaction(SIGINT, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;  // nohup, or somebody's own
    now.sa_handler = [](int number) {
      (void)!::write(STDERR_FILENO, text.data(), text.size());
      ::signal(number, SIG_DFL);
      ::raise(number);
    };
    set_ = ::sigaction(SIGINT, &now, nullptr) == 0;
  }
  ~InterruptNote() {
    if (set_) ::signal(SIGINT, SIG_DFL);
  }
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

 private:
  static inline std::string text;
  bool set_ = false;
};

}  // namespace

int Prefetch(Context& context) {
  PathOrder order(context);
  // Those of a list may be a million, each a request to the source: the job finds out.
  order.RefuseAbsent(PathOrder::Absent::kRefused);
  if (!context.command.list_file.empty()) {
    if (tierd::Status status = ReadList(context.command, &order); !status.ok()) return context.output.Fail(kExitError, status.message());
  }
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::uint64_t> ids;
  std::vector<json> jobs;
  const Answer sent = order.Send(kBatchPaths, [&](const json& paths, std::span<const std::size_t>) {
    if (context.command.wait && ids.size() >= jobs.size() + kJobsAtATime) {
      std::vector<json> ended;
      Answer watched = WatchJobs(context.client, context.output, {ids[jobs.size()]}, &ended);
      if (!watched.ok()) return watched;
      jobs.push_back(std::move(ended.front()));
    }
    Answer started = StartJob(context, paths);
    if (started.ok()) ids.push_back(NumberOf(started.body, "job"));
    return started;
  });
  if (!sent.ok()) return context.output.Fail(sent);
  if (ids.empty() && order.refused()) {
    if (context.output.json()) context.output.PrintJson(context.command.wait ? Document({}, {}, false) : json{{"jobs", json::array()}});
    return order.ExitCode(false);
  }
  if (!context.command.wait) {
    if (context.output.json()) context.output.PrintJson({{"jobs", ids}});
    for (const std::uint64_t id : ids) {
      if (!context.output.json()) context.output.Print("job " + std::to_string(id) + "\n");
    }
    return order.ExitCode(true);
  }
  std::vector<json> rest;
  const InterruptNote note(ids);
  const Answer watched = WatchJobs(context.client, context.output, {ids.begin() + static_cast<std::ptrdiff_t>(jobs.size()), ids.end()}, &rest);
  if (!watched.ok()) return context.output.Fail(watched);
  for (json& job : rest) jobs.push_back(std::move(job));
  const int reported = Report(context, jobs, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), order.refused());
  return reported != kExitOk ? reported : order.ExitCode(true);
}

}  // namespace tierctl
