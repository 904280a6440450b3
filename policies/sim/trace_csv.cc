// Traces as CSV: for traces of other systems.
#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "policies/sim/trace.h"

namespace tierd::sim {
namespace {

std::string_view TakeLine(std::string_view* text) {
  const std::size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::vector<std::string_view> Cells(std::string_view line) {
  std::vector<std::string_view> cells;
  for (;;) {
    const std::size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

std::optional<std::uint64_t> NumberOf(std::string_view cell) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (code != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

// Texts as dense numbers, in the order in which they come.
class Names {
 public:
  std::uint32_t NumberOf(std::string_view text) { return numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(numbers_.size())).first->second; }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

Status BadLine(std::size_t number, const std::string& what) { return Status(Code::kInvalid, "csv line " + std::to_string(number) + ": " + what); }

}  // namespace

Result<Trace> ParseCsv(std::string_view text) {
  constexpr std::size_t kNone = SIZE_MAX;
  std::size_t object = kNone, bytes = kNone, consumer = kNone, time = kNone;
  const std::vector<std::string_view> header = Cells(TakeLine(&text));
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (header[i] == "object") object = i;
    if (header[i] == "bytes") bytes = i;
    if (header[i] == "consumer") consumer = i;
    if (header[i] == "time_us") time = i;
  }
  if (object == kNone || bytes == kNone) return BadLine(1, "names no column `object`, or none `bytes`");
  Trace trace;
  Names objects, consumers;
  std::uint64_t now = 0;
  for (std::size_t number = 2; !text.empty(); ++number) {
    const std::string_view line = TakeLine(&text);
    if (line.empty()) continue;
    const std::vector<std::string_view> cells = Cells(line);
    if (cells.size() != header.size()) return BadLine(number, std::to_string(cells.size()) + " cells under " + std::to_string(header.size()) + " names");
    const std::optional<std::uint64_t> size = NumberOf(cells[bytes]);
    const std::optional<std::uint64_t> at = time == kNone ? now : NumberOf(cells[time]);
    if (!size || !at) return BadLine(number, "bytes or time_us is no number");
    if (*at < now) return BadLine(number, "time_us goes back");
    now = *at;
    const std::uint32_t id = objects.NumberOf(cells[object]);
    if (id >= kMaxTraceObjects) return BadLine(number, "too many objects");
    if (id == trace.objects.size()) trace.objects.push_back({.bytes = *size, .file = id, .chunk = 0});
    trace.accesses.push_back({id, consumer == kNone ? 0 : consumers.NumberOf(cells[consumer]), now});
  }
  return trace;
}

}  // namespace tierd::sim
