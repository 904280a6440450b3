#include "tierctl/terminal/job_watch.h"

#include <algorithm>
#include <cstdio>
#include <chrono>
#include <thread>

#include "tierctl/terminal/progress.h"
#include "tierd/config/units.h"

namespace tierctl {

using nlohmann::json;

bool IsFinal(const json& job) {
  const std::string state = TextOf(job, "state");
  return state != "running" && state != "verifying";
}

std::string BytesOf(const json& job) {
  const std::uint64_t done = NumberOf(job, "bytes_done"), total = NumberOf(job, "bytes_total");
  return tierd::config::HumanSize(done) + (total > done ? "/" + tierd::config::HumanSize(total) : "");
}

void JobSum::Add(const json& job) {
  files_total += NumberOf(job, "files_total");
  files_done += NumberOf(job, "files_done");
  files_failed += NumberOf(job, "files_failed");
  files_no_room += NumberOf(job, "files_no_room");
  bytes_done += NumberOf(job, "bytes_done");
  bytes_known += NumberOf(job, "bytes_known");
  files_sized += NumberOf(job, "files_sized");
  has_sizes = has_sizes && job.contains("files_sized") && job["files_sized"].is_number();
  files_expected += NumberOf(job, "files_expected");
  files_verified += NumberOf(job, "files_verified");
  bytes_verified += NumberOf(job, "bytes_verified");
  elapsed_s = std::max(elapsed_s, RealOf(job, "elapsed_s"));
  walking = walking || FlagOf(job, "walking");
  const std::string state = TextOf(job, "state");
  all_done = all_done && state == "done";
  cut_short = cut_short || (state != "done" && state != "partial");
  if (first_error.empty()) first_error = TextOf(job, "error");
}

std::optional<TimeToGo::Estimate> LeftOf(const JobSum& sum, const TimeToGo& pace) {
  const std::uint64_t ended = sum.files_ended();
  if (sum.walking || sum.files_total <= ended) return std::nullopt;
  Work left{static_cast<double>(sum.files_total - ended), 0};
  if (sum.has_sizes) {
    if (sum.files_sized == 0) return std::nullopt;
    // A file whose size is not known yet has the mean of those that are.
    const double known = static_cast<double>(sum.bytes_known);
    left.bytes = std::max(known - static_cast<double>(sum.bytes_done), 0.0) + known / static_cast<double>(sum.files_sized) * static_cast<double>(sum.files_unsized());
  }
  std::optional<TimeToGo::Estimate> estimate = pace.For(left, sum.has_sizes);
  if (estimate) estimate->seconds = std::max(estimate->seconds, 0.1);  // what is left takes some time
  return estimate;
}

std::string ProgressLine(const JobSum& sum, double seconds, const TimeToGo& pace) {
  const std::uint64_t ended = sum.files_ended();
  const double files_per_s = seconds > 0 ? static_cast<double>(ended) / seconds : 0;
  const double bytes_per_s = seconds > 0 ? static_cast<double>(sum.bytes_done) / seconds : 0;
  char rate[32];
  std::snprintf(rate, sizeof rate, "%.0f", files_per_s);
  std::string line = std::to_string(ended) + "/" + std::to_string(sum.files_total) + (sum.walking ? "+" : "") + " files, " + tierd::config::HumanSize(sum.bytes_done) +
                     (sum.sizes_known() && sum.bytes_known > sum.bytes_done ? "/" + tierd::config::HumanSize(sum.bytes_known) : "") + ", " + rate + " files/s, " + tierd::config::HumanSize(static_cast<std::uint64_t>(bytes_per_s)) + "/s";
  if (const auto left = LeftOf(sum, pace)) line += (left->at_most ? ", at most " : ", ") + Span(left->seconds) + " to go";
  if (sum.files_expected != 0) line += ", verified " + std::to_string(sum.files_verified);
  if (const std::uint64_t bad = sum.files_failed + sum.files_no_room; bad != 0) line += ", " + std::to_string(bad) + " not brought";
  return line;
}

Answer WatchJobs(ControlClient& client, Output& output, const std::vector<std::uint64_t>& ids, std::vector<json>* jobs) {
  jobs->assign(ids.size(), json());
  auto pause = std::chrono::milliseconds(20);
  Progress progress(output);
  TimeToGo pace;
  for (;;) {
    JobSum sum;
    bool all_final = true;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if ((*jobs)[i].is_null() || !IsFinal((*jobs)[i])) {
        Answer answer = client.Get("/v1/jobs/" + std::to_string(ids[i]));
        if (!answer.ok()) return answer;
        (*jobs)[i] = std::move(answer.body);
      }
      all_final = all_final && IsFinal((*jobs)[i]);
      sum.Add((*jobs)[i]);
    }
    if (all_final) return Answer();
    pace.Note(sum.elapsed_s, {static_cast<double>(sum.files_ended()), static_cast<double>(sum.bytes_done)});
    progress.Show([&] { return ProgressLine(sum, sum.elapsed_s, pace); });
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(500));
  }
}

}  // namespace tierctl
