#include "tierctl/terminal/reads.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tierctl/client/control_client.h"
#include "tierctl/terminal/output.h"

namespace tierctl {

using nlohmann::json;

std::uint64_t AllReads(const json& reads, const char* what) {
  std::uint64_t sum = 0;
  for (const ReadOrigin& origin : kReadOrigins) sum += NumberOf(PartOf(reads, origin.name), what);
  return sum;
}

json ByOrigin(const json& reads, const char* what) {
  json numbers = json::object();
  for (const ReadOrigin& origin : kReadOrigins) numbers[origin.name] = NumberOf(PartOf(reads, origin.name), what);
  return numbers;
}

// The largest part has what the others leave.
std::string Shares(const json& numbers) {
  std::uint64_t all = 0;
  const ReadOrigin* largest = kReadOrigins;
  for (const ReadOrigin& origin : kReadOrigins) {
    all += NumberOf(numbers, origin.name);
    if (NumberOf(numbers, origin.name) > NumberOf(numbers, largest->name)) largest = &origin;
  }
  const auto tenths = [&](const ReadOrigin& origin) {
    const std::uint64_t part = NumberOf(numbers, origin.name);
    return part == 0 ? 0 : std::max(1L, std::lround(1000.0 * static_cast<double>(part) / static_cast<double>(all)));
  };
  long left = 1000;
  for (const ReadOrigin& origin : kReadOrigins) left -= &origin == largest ? 0 : tenths(origin);
  std::string text;
  for (const ReadOrigin& origin : kReadOrigins) {
    if (NumberOf(numbers, origin.name) == 0) continue;
    const long share = &origin == largest ? left : tenths(origin);
    text += (text.empty() ? "" : ", ") + std::string(origin.words) + " " + std::to_string(share / 10) + (share == 1000 ? "%" : "." + std::to_string(share % 10) + "%");
  }
  return text.empty() ? "nothing" : text;
}

json BypassReasons(const json& document) {
  json reasons = json::object();
  std::uint64_t named = 0;
  const auto add = [&reasons](std::string name, std::uint64_t count) {
    if (name == "no_frame") name = "no room";
    std::replace(name.begin(), name.end(), '_', ' ');
    if (count != 0) reasons[name] = NumberOf(reasons, name.c_str()) + count;
  };
  const json& fallback = PartOf(document, "fallback");
  for (const auto& [name, count] : fallback.items()) {
    named += NumberOf(fallback, name.c_str());
    add(name, NumberOf(fallback, name.c_str()));
  }
  const json& opens = PartOf(document, "real_opens");
  for (const auto& [name, count] : opens.items()) {
    std::uint64_t more = NumberOf(opens, name.c_str());
    if (name == "not_cached") more -= std::min(more, named);  // its reason is among those above
    add(name, more);
  }
  return reasons;
}

std::string Listed(const json& numbers) {
  std::string text;
  for (const auto& [name, value] : numbers.items()) text += (text.empty() ? "" : ", ") + name + " " + value.dump();
  return text.empty() ? "none" : text;
}

std::string LeftOut(const json& status) {
  std::string text;
  // Each bypassed open of a client that does not count what it reads from the source has no read.
  std::uint64_t bypassed = 0;
  for (const auto& [reason, count] : PartOf(status, "fallback").items()) bypassed += NumberOf(PartOf(status, "fallback"), reason.c_str());
  const json& reads = PartOf(status, "reads");
  const std::uint64_t counted = NumberOf(PartOf(reads, "bypass"), "count");
  if (!status.contains("real_reads") && bypassed > counted)
    text += "not among these, nor in REGRET: what was read through " + Plural(bypassed - counted, "bypassed open") + ", beside " + Plural(AllReads(reads, "count"), "read") + " here\n";
  if (const std::uint64_t mappings = NumberOf(status, "source_mappings"); mappings > 0)
    text += "not among these: what was read through " + Plural(mappings, "mapping") + " of the source's own files\n";
  return text;
}

}  // namespace tierctl
