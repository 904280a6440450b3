#include "tierctl/reads.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tierctl/control_client.h"
#include "tierctl/output.h"

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

std::string Listed(const json& numbers) {
  std::string text;
  for (const auto& [name, value] : numbers.items()) text += (text.empty() ? "" : ", ") + name + " " + value.dump();
  return text.empty() ? "none" : text;
}

std::string LeftOut(const json& status) {
  std::string text;
  // Each open of a client that does not count what it reads from the source fell back, and has no read.
  std::uint64_t fell_back = 0;
  for (const auto& [reason, count] : PartOf(status, "fallback").items()) fell_back += NumberOf(PartOf(status, "fallback"), reason.c_str());
  const json& reads = PartOf(status, "reads");
  const std::uint64_t around = NumberOf(PartOf(reads, "bypass"), "count");
  if (!status.contains("real_reads") && fell_back > around)
    text += "not among these, nor in REGRET: what was read through " + Plural(fell_back - around, "open") + " that fell back to the source, beside " + Plural(AllReads(reads, "count"), "read") + " here\n";
  if (const std::uint64_t mappings = NumberOf(status, "source_mappings"); mappings > 0)
    text += "not among these: what was read through " + Plural(mappings, "mapping") + " of the source's own files\n";
  return text;
}

}  // namespace tierctl
