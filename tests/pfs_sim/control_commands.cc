#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/pfs_sim/control.h"

namespace pfs_sim {
namespace {

using Words = std::vector<std::string>;

CommandResult Ok(std::string text = "") { return {true, std::move(text)}; }
CommandResult Error(std::string text) { return {false, std::move(text)}; }

Words Split(const std::string& line) {
  std::istringstream in(line);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// The words from `first` on as key=value, or key+=value with the '+' kept in the key.
bool ParsePairs(const Words& words, size_t first, std::vector<KeyValue>* pairs, std::string* why) {
  for (size_t i = first; i < words.size(); ++i) {
    const size_t at = words[i].find('=');
    if (at == std::string::npos || at == 0) {
      *why = "'" + words[i] + "' is not key=value";
      return false;
    }
    const std::string_view word = words[i];
    pairs->push_back({word.substr(0, at), word.substr(at + 1)});
  }
  return true;
}

std::string PatternOf(std::string_view value) {
  if (value.size() > 1 && value.front() == '/') value.remove_prefix(1);
  return std::string(value);
}

CommandResult Latency(FileSystem& fs, const Words& words) {
  if (words.size() != 3) return Error("usage: latency OP|all USEC");
  const auto usec = ParseNumber(words[2]);
  constexpr uint64_t kHour = 3600ULL * 1000000;
  if (!usec || *usec > kHour) return Error("latency " + words[2] + " is not a number of microseconds");
  if (words[1] == "all") {
    fs.SetLatencyAll(*usec);
    return Ok();
  }
  const auto op = OpFromName(words[1]);
  if (!op) return Error("unknown operation '" + words[1] + "'");
  fs.SetLatency(*op, *usec);
  return Ok();
}

CommandResult Limit(FileSystem& fs, const Words& words) {
  const auto value = words.size() == 2 ? ParseNumber(words[1]) : std::nullopt;
  if (!value) return Error("usage: " + words[0] + " N (0 for no limit)");
  if (words[0] == "bandwidth") {
    fs.scheduler().SetBandwidth(*value);
  } else {
    const uint64_t most = std::numeric_limits<uint32_t>::max();
    fs.scheduler().SetConcurrency(static_cast<uint32_t>(std::min(*value, most)));
  }
  return Ok();
}

CommandResult Fault(FileSystem& fs, const Words& words) {
  const std::string verb = words.size() > 1 ? words[1] : "";
  if (verb == "add") {
    std::vector<KeyValue> pairs;
    std::string why;
    if (!ParsePairs(words, 2, &pairs, &why)) return Error(why);
    auto rule = ParseFaultRule(pairs, &why);
    if (!rule) return Error(why);
    return Ok(std::to_string(fs.AddFault(std::move(*rule))));
  }
  if (verb == "clear" && words.size() == 2) {
    fs.ClearFaults();
    return Ok();
  }
  if (verb == "clear" && words.size() == 3) {
    const auto id = ParseNumber(words[2]);
    if (!id || !fs.RemoveFault(*id)) return Error("no fault '" + words[2] + "'");
    return Ok();
  }
  return Error("usage: fault add KEY=VALUE... | fault clear [ID]");
}

CommandResult Release(FileSystem& fs, const Words& words) {
  int error = 0;
  if (words.size() > 2) return Error("usage: release [errno=NAME]");
  if (words.size() == 2) {
    const bool named = words[1].starts_with("errno=");
    const auto value = named ? ErrnoFromName(std::string_view(words[1]).substr(6)) : std::nullopt;
    if (!value) return Error("'" + words[1] + "' is not errno=NAME");
    error = *value;
  }
  return Ok(std::to_string(fs.ReleaseHung(error)));
}

CommandResult StampGranularity(FileSystem& fs, const Words& words) {
  const auto nsec = words.size() == 2 ? ParseNumber(words[1]) : std::nullopt;
  if (!nsec) return Error("usage: stamp_granularity NSEC");
  fs.SetStampGranularity(*nsec);
  return Ok();
}

CommandResult Shift(FileSystem& fs, const Words& words) {
  constexpr char kUsage[] = "usage: attr_shift path=GLOB [ino+=N] [ctime+=NSEC] [each=1] | attr_shift clear";
  if (words.size() == 2 && words[1] == "clear") {
    fs.ClearAttrShifts();
    return Ok();
  }
  std::vector<KeyValue> pairs;
  std::string why;
  if (words.size() < 2) return Error(kUsage);
  if (!ParsePairs(words, 1, &pairs, &why)) return Error(why);
  AttrShift shift;
  for (const KeyValue& pair : pairs) {
    const auto number = ParseNumber(pair.value);
    if (pair.key == "path") {
      shift.path = PatternOf(pair.value);
    } else if (pair.key == "ino+" && number) {
      shift.ino = *number;
    } else if (pair.key == "ctime+" && number) {
      shift.ctime_ns = *number;
    } else if (pair.key == "each" && number) {
      shift.each = *number != 0;
    } else {
      return Error("bad word '" + std::string(pair.key) + "=" + std::string(pair.value) + "'; " + kUsage);
    }
  }
  fs.AddAttrShift(std::move(shift));
  return Ok();
}

CommandResult Hide(FileSystem& fs, const Words& words) {
  if (words.size() == 2 && words[1] == "clear") {
    fs.ClearHidden();
    return Ok();
  }
  if (words.size() != 2 || !words[1].starts_with("path=") || words[1].size() == 5) {
    return Error("usage: hide path=GLOB | hide clear");
  }
  fs.Hide(PatternOf(std::string_view(words[1]).substr(5)));
  return Ok();
}

CommandResult ShowCounters(FileSystem& fs, const Words& words) {
  if (words.size() == 1) return Ok(fs.CountersJson());
  if (words[1] == "reset" && words.size() == 2) {
    fs.ResetCounters();
    return Ok();
  }
  if (words[1] == "paths" && words.size() <= 3) return Ok(fs.PathsJson(words.size() == 3 ? words[2] : ""));
  return Error("usage: counters [reset | paths [PREFIX]]");
}

}  // namespace

CommandResult RunCommand(FileSystem& fs, const std::string& line) {
  using Command = CommandResult (*)(FileSystem&, const Words&);
  static constexpr std::pair<std::string_view, Command> kCommands[] = {
      {"latency", Latency},
      {"bandwidth", Limit},
      {"concurrency", Limit},
      {"fault", Fault},
      {"release", Release},
      {"stamp_granularity", StampGranularity},
      {"attr_shift", Shift},
      {"hide", Hide},
      {"counters", ShowCounters}};
  const Words words = Split(line);
  if (words.empty()) return Error("empty command");
  if (words[0] == "ping" && words.size() == 1) return Ok("pong");
  if (words[0] == "status" && words.size() == 1) return Ok(fs.StatusJson());
  for (const auto& [name, command] : kCommands) {
    if (name == words[0]) return command(fs, words);
  }
  return Error("unknown command '" + words[0] +
               "' (latency bandwidth concurrency fault release stamp_granularity attr_shift hide "
               "counters status ping quit)");
}

}  // namespace pfs_sim
