#include "tierctl/top_history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tierctl/client/control_client.h"
#include "tierctl/terminal/output.h"
#include "tierctl/terminal/reads.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using nlohmann::json;

constexpr double kSpan = 60;
constexpr std::size_t kCells = 40;
constexpr std::array<std::string_view, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, 8> kAscii{"_", ".", ":", "-", "=", "+", "*", "#"};

double Grown(const json& before, const json& now, const char* name) {
  const std::uint64_t to = NumberOf(now, name), from = NumberOf(before, name);
  return static_cast<double>(to >= from ? to - from : to);
}

double SourceBytes(const json& status) {
  std::uint64_t bytes = NumberOf(PartOf(PartOf(status, "reads"), "bypass"), "bytes");
  for (const json& source : ListOf(status, "sources")) bytes += NumberOf(source, "read_bytes");
  return static_cast<double>(bytes);
}

}  // namespace

void TopHistory::Add(const json& before, const json& now, double seconds) {
  if (seconds <= 0) return;
  double hits = 0, all = 0;
  for (const ReadOrigin& origin : kReadOrigins) {
    const double reads = Grown(PartOf(PartOf(before, "reads"), origin.name), PartOf(PartOf(now, "reads"), origin.name), "count");
    all += reads;
    if (std::string_view(origin.name) == "ram" || std::string_view(origin.name) == "ssd") hits += reads;
  }
  const double was = SourceBytes(before), is = SourceBytes(now);
  steps_.push_back({seconds, all > 0 ? hits / all : -1, (is >= was ? is - was : is) / seconds});
  double later = 0;
  for (const Step& step : steps_) later += step.seconds;
  while (later - steps_.front().seconds >= kSpan) {
    later -= steps_.front().seconds;
    steps_.pop_front();
  }
}

// Each cell is the mean over its time; a blank where nothing is known of it.
template <typename ValueOf>
std::string TopHistory::Line(ValueOf value_of, double top, bool unicode) const {
  constexpr double kCell = kSpan / kCells;
  std::string line;
  for (std::size_t cell = 0; cell < kCells; ++cell) {
    const double oldest = static_cast<double>(kCells - cell) * kCell, latest = oldest - kCell;  // seconds ago
    double sum = 0, time = 0, ago = 0;
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const double begin = ago + step->seconds;
      const double within = std::min(oldest, begin) - std::max(latest, ago);
      ago = begin;
      const double value = value_of(*step);
      if (within <= 1e-9 || value < 0) continue;
      sum += value * within;
      time += within;
    }
    if (time == 0) {
      line += " ";
      continue;
    }
    const double share = top > 0 ? std::clamp(sum / time / top, 0.0, 1.0) : 0;
    const auto level = static_cast<std::size_t>(std::lround(share * static_cast<double>(kBlocks.size() - 1)));
    line += unicode ? kBlocks[level] : kAscii[level];
  }
  return line;
}

std::string TopHistory::Text(bool unicode) const {
  using tierd::config::HumanSize;
  if (steps_.empty()) return "";
  const Step& last = steps_.back();
  double most = 0;
  for (const Step& step : steps_) most = std::max(most, step.source_rate);
  const auto rate = [](double bytes) { return HumanSize(static_cast<std::uint64_t>(bytes)) + "/s"; };
  const std::string hits = last.hits < 0 ? "-" : Percent(static_cast<std::uint64_t>(last.hits * 1e6), 1'000'000);
  return "HIT SHARE  |" + Line([](const Step& step) { return step.hits; }, 1, unicode) + "| " + hits + "\n" +
         "SOURCE     |" + Line([](const Step& step) { return step.source_rate; }, most, unicode) + "| " + rate(last.source_rate) + " of " + rate(most) + "\n";
}

bool IsUtf8(const std::string& lc_all, const std::string& lc_ctype, const std::string& lang) {
  std::string name = !lc_all.empty() ? lc_all : !lc_ctype.empty() ? lc_ctype : lang;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("utf-8") != std::string::npos || name.find("utf8") != std::string::npos;
}

}  // namespace tierctl
