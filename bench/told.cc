#include "bench/told.h"

#include <sys/prctl.h>
#include <tier/tier.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

namespace bench {

std::uint64_t TellPlan(const Daemon& daemon, const std::vector<std::string>& paths, const tierd::orders::Plan& plan) {
  const std::string directory = daemon.Get("/v1/status").value("runtime_directory", "");
  const std::string name = "bench-" + std::to_string(::getpid()) + ".list";
  std::ofstream list(directory + "/" + name, std::ios::binary);
  for (const std::string& path : paths) list << path << '\n';
  list.close();
  const auto answer = daemon.Post("/v1/plans", {{"plan", nlohmann::json::parse(tierd::orders::PlanToJson(plan))}, {"list", name}, {"path", paths.front()}, {"keep", true}});
  return answer.is_object() ? answer.value("plan", std::uint64_t{0}) : 0;
}

bool AwaitMapped(const Daemon& daemon) {
  for (int i = 0; i < 1000; ++i, ::usleep(10'000)) {
    const auto plans = daemon.Get("/v1/plans");
    if (plans.is_object() && plans["plans"].size() == 1 && plans["plans"][0]["state"] != "mapping") return true;
  }
  return false;
}

std::optional<PacedRead> ReadPaced(const std::vector<std::string>& paths, const std::vector<std::uint32_t>& order, double bytes_per_second,
                                   const std::function<void()>& after_each) {
  ::prctl(PR_SET_TIMERSLACK, 1);
  std::vector<char> buffer(4 << 20);
  PacedRead result;
  double computed = 0;
  const double from = Now();
  for (const std::uint32_t sample : order) {
    const double asked = Now();
    const ssize_t got = tier_read_file(nullptr, paths[sample].c_str(), buffer.data(), buffer.size(), nullptr, 0);
    const double wait = Now() - asked;
    if (got < 0) return std::nullopt;
    result.waited += wait;
    result.longest = std::max(result.longest, wait);
    computed += static_cast<double>(got) / bytes_per_second;
    if (after_each) after_each();
    const double rest = from + result.waited + computed - Now();
    if (rest > 0) std::this_thread::sleep_for(std::chrono::duration<double>(rest));
  }
  result.seconds = Now() - from;
  return result;
}

}  // namespace bench
