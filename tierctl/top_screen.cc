#include "tierctl/top_screen.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "tierctl/client/control_client.h"
#include "tierctl/terminal/job_watch.h"
#include "tierctl/terminal/output.h"
#include "tierctl/client/paths.h"
#include "tierctl/terminal/reads.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using nlohmann::json;
using tierd::config::HumanSize;

std::string Number(double value) {
  char text[32];
  if (value >= 1e6) std::snprintf(text, sizeof text, "%.1fM", value / 1e6);
  else if (value >= 1e4) std::snprintf(text, sizeof text, "%.1fk", value / 1e3);
  else std::snprintf(text, sizeof text, value < 10 && value > 0 ? "%.1f" : "%.0f", value);
  return text;
}

class Rates {
 public:
  explicit Rates(double seconds) : seconds_(seconds) {}
  bool known() const { return seconds_ > 0; }
  // Counters go back only when the daemon was started anew: then they are what has come since.
  double Of(const json& before, const json& now, const char* name) const {
    const std::uint64_t to = NumberOf(now, name), from = NumberOf(before, name);
    return known() ? static_cast<double>(to >= from ? to - from : to) / seconds_ : 0;
  }
  std::string Text(const json& before, const json& now, const char* name) const { return known() ? Number(Of(before, now, name)) : "-"; }
  std::string Bytes(const json& before, const json& now, const char* name) const {
    return known() ? HumanSize(static_cast<std::uint64_t>(Of(before, now, name))) + "/s" : "-";
  }

 private:
  const double seconds_;
};

// How full, as a bar of ten.
std::string Bar(std::uint64_t used, std::uint64_t capacity) {
  const std::size_t full = capacity == 0 ? 0 : static_cast<std::size_t>(std::min<std::uint64_t>(10, used * 10 / capacity));
  return "[" + std::string(full, '#') + std::string(10 - full, '.') + "]";
}

std::string Head(const Palette& palette, const json& status) {
  return "tierd " + TextOf(status, "version") + " pid " + std::to_string(NumberOf(status, "pid")) + ": " + palette.State(TextOf(status, "state")) + ", up " + Span(RealOf(status, "uptime_s")) + ", " +
         Plural(NumberOf(status, "sessions"), "client") + ", " + Plural(NumberOf(status, "leases"), "lease") + "\n";
}

std::string Reads(const Palette& palette, const json& before, const json& now, const Rates& rates) {
  double all = 0;
  for (const ReadOrigin& origin : kReadOrigins) all += rates.Of(PartOf(before, origin.name), PartOf(now, origin.name), "count");
  Table table(1);
  table.Head({"READS/S", "FROM", "SHARE", "BYTES/S", "SINCE START"}, palette);
  for (const ReadOrigin& origin : kReadOrigins) {
    const json &was = PartOf(before, origin.name), &is = PartOf(now, origin.name);
    const double rate = rates.Of(was, is, "count");
    table.Row({rates.Text(was, is, "count"), origin.name, all > 0 ? Percent(static_cast<std::uint64_t>(rate * 1000), static_cast<std::uint64_t>(all * 1000)) : "-", rates.Bytes(was, is, "bytes"),
               std::to_string(NumberOf(is, "count")) + ", " + HumanSize(NumberOf(is, "bytes"))});
  }
  return table.Text();
}

std::string Tiers(const Palette& palette, const json& tiers) {
  Table table(0);
  table.Head({"TIER", "STATE", "FULL", "USED", "MAY HOLD", "OBJECTS", "PINNED"}, palette);
  for (const char* name : {"ram", "ssd"}) {
    const json& tier = PartOf(tiers, name);
    const std::uint64_t used = NumberOf(tier, "used_bytes"), allowed = NumberOf(tier, "allowed_bytes");
    if (TextOf(tier, "state") == "off") table.Row({name, "off"});
    else table.Row({name, palette.State(TextOf(tier, "state")), Bar(used, allowed), HumanSize(used), HumanSize(allowed), std::to_string(NumberOf(tier, "objects")), HumanSize(NumberOf(tier, "pinned_bytes"))});
  }
  return table.Text();
}

std::string Sources(const Palette& palette, const json& before, const json& now, const Rates& rates) {
  Table table(0);
  table.Head({"SOURCE", "STATE", "POLICY", "REQ/S", "BYTES/S", "IN FLIGHT", "HUNG", "FILES"}, palette);
  for (const json& source : now) {
    const json* was = &PartOf(source, "none");
    for (const json& other : before)
      if (TextOf(other, "name") == TextOf(source, "name")) was = &other;
    table.Row({Escaped(TextOf(source, "name")), palette.State(TextOf(source, "state")), TextOf(source, "policy"), rates.Text(*was, source, "requests"), rates.Bytes(*was, source, "read_bytes"),
               std::to_string(NumberOf(source, "in_flight")) + "/" + std::to_string(NumberOf(source, "window")), std::to_string(NumberOf(source, "hung")),
               std::to_string(NumberOf(source, "files"))});
  }
  return table.Text();
}

std::string Jobs(const Palette& palette, const json& before, const json& now, const Rates& rates) {
  Table table(1);
  for (const json& job : now) {
    const std::string state = TextOf(job, "state");
    if (state != "running" && state != "verifying") continue;
    const json* was = &PartOf(job, "none");
    for (const json& other : before)
      if (NumberOf(other, "id") == NumberOf(job, "id")) was = &other;
    if (table.Text().empty()) table.Head({"JOB", "KIND", "STATE", "FILES", "BYTES", "BYTES/S"}, palette);
    table.Row({std::to_string(NumberOf(job, "id")), TextOf(job, "kind"), palette.State(state), std::to_string(NumberOf(job, "files_done")) + "/" + std::to_string(NumberOf(job, "files_total")),
               BytesOf(job), rates.Bytes(*was, job, "bytes_done")});
  }
  return table.Text();
}

std::string Trouble(const Palette& palette, const json& before, const json& now, const Rates& rates) {
  std::string text;
  const json was = BypassReasons(before), is = BypassReasons(now);
  for (const auto& [reason, count] : is.items()) {
    const double rate = rates.Of(was, is, reason.c_str());
    if (rate > 0) text += (text.empty() ? "bypass now: " : ", ") + reason + " " + Number(rate) + "/s";
  }
  if (!text.empty()) text = palette.Attention(text) + "\n";
  if (const auto failures = NumberOf(now, "integrity_failures"); failures != 0) text += palette.Wrong("integrity failures (not served): " + std::to_string(failures)) + "\n";
  return text;
}

// Cuts each line to the width of the screen. Names were escaped before, so a byte is never a control character.
std::string Cut(const std::string& text, std::size_t columns, std::size_t rows) {
  std::istringstream lines(text);
  std::string out;
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line) && (rows == 0 || count < rows); ++count) out += FirstColumns(line, columns) + "\n";
  return out;
}

}  // namespace

std::string TopScreen(const TopLook& before, const TopLook& now, double seconds, const TopStyle& style) {
  const Rates rates(seconds);
  const Palette& palette = style.palette;
  std::string text = Head(palette, now.status) + "\n" + Reads(palette, PartOf(before.status, "reads"), PartOf(now.status, "reads"), rates) + LeftOut(now.status) + "\n";
  if (!style.history.empty()) text += style.history + "\n";
  text += Tiers(palette, PartOf(now.status, "tiers")) + "\n" + Sources(palette, ListOf(before.status, "sources"), ListOf(now.status, "sources"), rates);
  if (const std::string jobs = Jobs(palette, before.jobs, now.jobs, rates); !jobs.empty()) text += "\n" + jobs;
  if (const std::string trouble = Trouble(palette, before.status, now.status, rates); !trouble.empty()) text += "\n" + trouble;
  return Cut(text, std::max<std::size_t>(style.columns, 40), style.rows);
}

}  // namespace tierctl
