#include "tierctl/run/summary.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>

#include "tierctl/control_client.h"
#include "tierctl/output.h"
#include "tierd/config/units.h"

namespace tierctl::run {
namespace {

using nlohmann::json;

constexpr const char* kOrigins[] = {"ram", "ssd", "source", "bypass"};

void Add(json& sum, const json& line) {
  for (const auto& [name, value] : line.items()) {
    if (name == "pid" || name == "command") continue;
    if (value.is_object()) {
      if (!sum.contains(name)) sum[name] = json::object();
      Add(sum[name], value);
    } else if (value.is_number_unsigned()) {
      sum[name] = (sum.contains(name) ? sum[name].get<std::uint64_t>() : 0) + value.get<std::uint64_t>();
    }
  }
}

const json& Part(const json& object, const char* name) {
  static const json nothing = json::object();
  const auto at = object.is_object() ? object.find(name) : object.end();
  return at != object.end() && at->is_object() ? *at : nothing;
}

std::uint64_t Sum(const json& object) {
  std::uint64_t sum = 0;
  for (const auto& [name, value] : object.items()) sum += value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
  return sum;
}

std::string Listed(const json& object, const char* nothing) {
  std::string text;
  for (const auto& [name, value] : object.items()) text += (text.empty() ? "" : ", ") + name + " " + value.dump();
  return text.empty() ? nothing : text;
}

std::uint64_t SourceBytes(const json& status) {
  std::uint64_t bytes = 0;
  for (const json& source : ListOf(status, "sources")) bytes += NumberOf(source, "read_bytes");
  return bytes;
}

// The one thing most worth doing.
std::string Advice(const JobFacts& facts) {
  const json& bytes = Part(facts.reports, "bytes");
  const std::uint64_t all = Sum(bytes);
  if (!facts.preload) return "--no-preload: only programs that use libtier or the Python package were served";
  if (all == 0 && NumberOf(facts.reports, "processes") == 0) return "nothing below a source was read by a program that could be served; is --source right?";
  const json& fallback = Part(facts.reports, "fallback");
  if (NumberOf(fallback, "no_daemon") + NumberOf(fallback, "timeout") > 0) return "the daemon was not always there: see its log with --keep";
  if (Sum(Part(facts.reports, "conversions")) > Sum(Part(facts.reports, "reads")) / 10 && Sum(Part(facts.reports, "conversions")) > 100)
    return "many descriptors had to become real (" + Listed(Part(facts.reports, "conversions"), "") + "): read before forking, or use libtier directly";
  if (NumberOf(bytes, "bypass") > all / 4) return "a good part was read around the cache: a larger --ram or --ssd holds more";
  if (NumberOf(bytes, "ssd") > all / 2) return "most came from the SSD: a larger --ram is faster";
  if (NumberOf(bytes, "source") > all / 2) return "most was read for the first time: a second epoch, or tierctl prefetch before the first, is faster";
  return "nothing to improve here";
}

}  // namespace

json AddUpReports(const std::string& path) {
  json sum = json::object();
  std::uint64_t processes = 0;
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const json parsed = json::parse(line, nullptr, false);
    if (!parsed.is_object()) continue;
    ++processes;
    Add(sum, parsed);
  }
  sum["processes"] = processes;
  return sum;
}

json SummaryJson(const JobFacts& facts) {
  json document = {{"exit_code", facts.exit_code}, {"seconds", facts.seconds}, {"preload", facts.preload}};
  document["job"] = facts.reports;
  document["daemon"] = facts.status;
  document["source_read_bytes"] = SourceBytes(facts.status);
  document["advice"] = Advice(facts);
  return document;
}

std::string SummaryText(const JobFacts& facts) {
  using tierd::config::HumanSize;
  const json& reads = Part(facts.reports, "reads");
  const json& bytes = Part(facts.reports, "bytes");
  const std::uint64_t all = Sum(bytes);
  std::string origins;
  for (const char* origin : kOrigins) {
    const char* const name = std::string_view(origin) == "bypass" ? "around the cache" : std::string_view(origin) == "source" ? "first read" : origin;
    origins += (origins.empty() ? "" : ", ") + std::string(name) + " " + Percent(NumberOf(bytes, origin), all);
  }
  const std::uint64_t cached = all - NumberOf(bytes, "bypass");
  const std::uint64_t from_source = SourceBytes(facts.status);
  std::string text;
  text += "tierd: " + HumanSize(all) + " in " + std::to_string(Sum(reads)) + " reads of " + Plural(NumberOf(facts.reports, "processes"), "process") + ", " + Span(facts.seconds) + "\n";
  text += "tierd: from " + origins + "\n";
  text += "tierd: the source gave tierd " + HumanSize(from_source) + " for " + HumanSize(cached) + " served: " +
          (cached > from_source ? HumanSize(cached - from_source) + " saved" : std::string("nothing saved yet")) + "\n";
  text += "tierd: around the cache: " + Listed(Part(facts.reports, "fallback"), "none") + "; real from the start: " + Listed(Part(facts.reports, "real_opens"), "none") + "\n";
  text += "tierd: descriptors made real: " + Listed(Part(facts.reports, "conversions"), "none") + "; answered from the index: " +
          std::to_string(NumberOf(facts.reports, "stats")) + " stat, " + std::to_string(NumberOf(facts.reports, "listings")) + " listings\n";
  text += "tierd: " + Advice(facts) + "\n";
  return text;
}

}  // namespace tierctl::run
