#include "tierctl/run/summary.h"

#include <signal.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <utility>
#include <vector>

#include "tierctl/control_client.h"
#include "tierctl/output.h"
#include "tierd/base/printable.h"
#include "tierd/config/units.h"

namespace tierctl::run {
namespace {

using nlohmann::json;

struct Origin {
  const char* name;
  const char* words;
};
constexpr Origin kOrigins[] = {{"ram", "ram"}, {"ssd", "ssd"}, {"source", "first read"}, {"bypass", "around the cache"}};
constexpr std::size_t kMostEpochs = 4;  // said one by one in a line

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

std::uint64_t Sum(const json& object) {
  std::uint64_t sum = 0;
  for (const auto& [name, value] : object.items()) sum += value.is_number() ? NumberOf(object, name.c_str()) : 0;
  return sum;
}

std::uint64_t SumOf(const json& reads, const char* what) {
  std::uint64_t sum = 0;
  for (const Origin& origin : kOrigins) sum += NumberOf(PartOf(reads, origin.name), what);
  return sum;
}

std::string Listed(const json& object) {
  std::string text;
  for (const auto& [name, value] : object.items()) text += (text.empty() ? "" : ", ") + name + " " + value.dump();
  return text.empty() ? "none" : text;
}

// How much a counter of the daemon grew; of one that was started anew meanwhile: what it has counted since.
std::uint64_t Grown(const json& before, const json& after, const char* name) {
  const std::uint64_t now = NumberOf(after, name), then = NumberOf(before, name);
  return now >= then ? now - then : now;
}

std::uint64_t SourceBytes(const json& status) {
  std::uint64_t bytes = 0;
  for (const json& source : ListOf(status, "sources")) bytes += NumberOf(source, "read_bytes");
  return bytes;
}

// There was a daemon, and it could not be asked at the end.
bool IsGone(const JobFacts& facts) { return !facts.before.is_null() && facts.after.is_null(); }

// By a signal, or so says what waited for it: timeout (124), a shell, srun.
bool IsKilled(std::uint64_t exit_code) { return exit_code == 124 || exit_code > 128; }

// What a process read is in its report, which it writes when it ends by itself.
bool NoReport(const JobFacts& facts) {
  return facts.preload && NumberOf(facts.reports, "processes") == 0 && !facts.before.is_null() && !facts.after.is_null() && (facts.signal_number != 0 || IsKilled(static_cast<std::uint64_t>(facts.exit_code)));
}

// A daemon of the job's own has also counted programs that use libtier by themselves; one that serves others too is believed only where nothing else is known.
bool AsksDaemon(const JobFacts& facts) { return facts.own_daemon || !facts.preload || NoReport(facts); }

// Reads by origin.
json Reads(const JobFacts& facts) {
  const bool ask_daemon = AsksDaemon(facts);
  json reads = json::object();
  for (const Origin& origin : kOrigins) {
    const json& before = PartOf(PartOf(facts.before, "reads"), origin.name);
    const json& after = PartOf(PartOf(facts.after, "reads"), origin.name);
    const auto most = [&](const char* part, const char* what) {
      return std::max(NumberOf(PartOf(facts.reports, part), origin.name), ask_daemon ? Grown(before, after, what) : 0);
    };
    reads[origin.name] = {{"count", most("reads", "count")}, {"bytes", most("bytes", "bytes")}};
  }
  return reads;
}

json Fallbacks(const JobFacts& facts) {
  json fallback = PartOf(facts.reports, "fallback");
  if (!AsksDaemon(facts)) return fallback;
  for (const auto& [reason, count] : PartOf(facts.after, "fallback").items()) {
    const std::uint64_t grown = Grown(PartOf(facts.before, "fallback"), PartOf(facts.after, "fallback"), reason.c_str());
    if (grown > NumberOf(fallback, reason.c_str())) fallback[reason] = grown;
  }
  return fallback;
}

// Epoch by epoch (CONTROL.md says what one is), the sources taken together; only of a daemon of the job's own.
json Epochs(const JobFacts& facts) {
  json epochs = json::array();
  if (!facts.own_daemon) return epochs;
  for (const json& source : ListOf(facts.after, "sources")) {
    std::size_t i = 0;
    for (const json& epoch : ListOf(source, "epochs")) {
      if (i == epochs.size()) epochs.push_back(json::object());
      Add(epochs[i++], epoch);
    }
  }
  return epochs;
}

// Reads that no reason was counted for: of files below no source, which only the Python package and programs linked with libtier read through the library. Those that had one are as many
// as fell back, but for the opens among them that found no room.
std::uint64_t ReadsOutside(const json& summary) {
  const std::uint64_t fell_back = Sum(PartOf(summary, "fallback")), reads = NumberOf(PartOf(PartOf(summary, "reads"), "bypass"), "count");
  const std::uint64_t with_reason = fell_back - std::min(fell_back, NumberOf(PartOf(summary, "real_opens"), "not_cached"));
  return reads - std::min(reads, with_reason);
}

std::uint64_t ReadsGrown(const JobFacts& facts) {
  std::uint64_t sum = 0;
  for (const Origin& origin : kOrigins) sum += Grown(PartOf(PartOf(facts.before, "reads"), origin.name), PartOf(PartOf(facts.after, "reads"), origin.name), "count");
  return sum;
}

// Opens that were the source's from the start: what is read through them nobody counts. Of processes that did not report, and where the daemon is asked, as many as fell back beyond the reads that did.
std::uint64_t RealOpens(const json& summary) {
  if (NumberOf(summary, "processes") > 0) return Sum(PartOf(summary, "real_opens"));
  const std::uint64_t fell_back = Sum(PartOf(summary, "fallback")), reads = NumberOf(PartOf(PartOf(summary, "reads"), "bypass"), "count");
  return fell_back - std::min(fell_back, reads);
}

// What to do about opens that found no room, if they are many; else "".
std::string AdviceOnRoom(const JobFacts& facts, const json& summary) {
  const json& fallback = PartOf(summary, "fallback");
  const std::uint64_t no_frame = NumberOf(fallback, "no_frame"), others = NumberOf(fallback, "no_daemon") + NumberOf(fallback, "timeout");
  const bool reported = NumberOf(summary, "processes") > 0;
  const std::uint64_t refused = std::min(no_frame, reported ? NumberOf(PartOf(summary, "real_opens"), "not_cached") : RealOpens(summary));
  const json& reads = PartOf(summary, "reads");
  if (reported && NumberOf(PartOf(reads, "bypass"), "count") >= refused && refused <= SumOf(reads, "count") / 4) return "";  // the library's own opens: each is a read, too
  const std::uint64_t all = reported ? NumberOf(summary, "opened") + Sum(PartOf(summary, "real_opens")) : SumOf(reads, "count") + refused;
  if (refused <= all / 4 || refused <= others) return "";
  const std::string what = (reported ? std::to_string(refused) + " of " + Plural(all, "open") : Plural(refused, "open") + ", beside " + Plural(all - refused, "read") + " that " + (all - refused == 1 ? "was" : "were") + " counted,") +
                           " found no room in the cache";
  if (facts.limited_space) return what + ": of an address space that is limited (ulimit -v) an eighth is used for it; a higher limit, or none, holds more";
  const bool no_ssd = TextOf(PartOf(PartOf(facts.after, "tiers"), "ssd"), "state") == "off";
  return what + ": a larger --ram" + (no_ssd ? ", or an SSD tier (--ssd)," : " or --ssd") + " holds more";
}

// Processes that the library does nothing in.
std::string OtherLibc(std::uint64_t count) { return std::to_string(count) + (count == 1 ? " process" : " processes") + " whose C library is not glibc"; }

// What to say where the library served nothing and no daemon was missing.
std::string AdviceOnNothing(const JobFacts& facts, const json& summary) {
  if (NumberOf(facts.reports, "processes") == 0 && (facts.exit_code == 126 || facts.exit_code == 127))
    return "nothing below a source was read: exit code " + std::to_string(facts.exit_code) + " is that of a command that " + (facts.exit_code == 127 ? "is not found" : "cannot be executed");
  if (const std::uint64_t other = NumberOf(facts.reports, "other_libc"); other > 0) return "nothing was served: " + OtherLibc(other) + " (musl?); such programs read the source";
  if (!facts.preload) return "--no-preload: no program that uses libtier or the Python package read anything";
  if (const json& real = PartOf(summary, "real_opens"); Sum(real) > 0) return "nothing was served: what was opened below a source was opened for real (" + Listed(real) + ")";
  if (const json& fallback = PartOf(summary, "fallback"); Sum(fallback) > 0) return "nothing was served: all fell back to the source (" + Listed(fallback) + ")";
  if (NoReport(facts)) return "no read below a source had reached the daemon when the job was killed; is --source right?";
  if (const std::uint64_t reads = ReadsGrown(facts); reads > 0)
    return "no process of the job reported: it read nothing below a source, or was killed before it could (" + Plural(reads, "read") + " of all jobs of this daemon meanwhile)";
  return "nothing below a source was read by a program that could be served; is --source right?";
}

// Of what was read around the cache, if the most of it lies below no source; else "".
std::string AdviceOnOutside(const json& summary) {
  const json& bypass = PartOf(PartOf(summary, "reads"), "bypass");
  const std::uint64_t outside = ReadsOutside(summary), reads = NumberOf(bypass, "count");
  if (outside <= reads / 2) return "";
  const std::string what = outside == reads ? tierd::config::HumanSize(NumberOf(bypass, "bytes")) + " in " + Plural(reads, "read") + (reads == 1 ? " lies" : " lie")
                                            : std::to_string(outside) + " of " + Plural(reads, "read") + " around the cache were of files that lie";
  return what + " below no source: if that is data, add its directory (--source)";
}

constexpr std::uint64_t kLittleMore = 64 << 20;  // what warm-up may have begun

// A read's origin is where its bytes were when they were asked for: of what is read for the first time most may have been brought just before. So it goes by what the source gave: more than two thirds of what
// was served, since two epochs take half of it and what is brought beside them. In a third epoch (`epochs` counts those that have begun) more has been read before.
bool IsMostNew(const json& summary) {
  const json& reads = PartOf(summary, "reads");
  const std::uint64_t served = SumOf(reads, "bytes") - NumberOf(PartOf(reads, "bypass"), "bytes");
  if (NumberOf(PartOf(reads, "source"), "bytes") > served / 2) return true;
  return served > 0 && FlagOf(summary, "own_daemon") && ListOf(summary, "epochs").size() <= 2 && NumberOf(summary, "source_read_bytes") > served - served / 3;
}

// Of a daemon of the job's own that was killed.
std::string AdviceOnKilled(const JobFacts& facts) {
  const std::string what = "the daemon was killed while the job ran (signal " + std::to_string(facts.daemon_signal) + ")";
  if (facts.daemon_signal != SIGKILL) return what + ": what was read later is the source's; see its log with --keep";
  return what + (facts.signal_number == SIGKILL ? ", and so was the job" : ": what was read later is the source's") +
         "; where memory runs out the kernel ends the daemon first: a smaller --ram, or more memory for the job";
}

// The one thing most worth doing.
std::string Advice(const JobFacts& facts, const json& summary) {
  const json& reads = PartOf(summary, "reads");
  const std::uint64_t all = SumOf(reads, "bytes");
  const json& conversions = PartOf(summary, "conversions");
  const auto part = [&reads](const char* origin) { return NumberOf(PartOf(reads, origin), "bytes"); };
  if (!facts.without.empty()) return "without a cache: " + facts.without + "; all was read from the source";
  if (facts.before.is_null()) return "there was no daemon: all was read from the source";
  if (facts.daemon_signal != 0) return AdviceOnKilled(facts);
  const json& fallback = PartOf(summary, "fallback");
  const std::uint64_t missed = NumberOf(fallback, "no_daemon");
  const std::string times = missed > 0 ? " (no_daemon " + std::to_string(missed) + ")" : "";
  const bool nothing = all == 0 && NumberOf(summary, "opened") + NumberOf(summary, "stats") + NumberOf(summary, "listings") == 0;
  if (NoReport(facts) && !facts.own_daemon && SumOf(reads, "count") + Sum(fallback) > 0)
    return "the job's processes were killed before they could report: all figures are the daemon's, of all jobs that it served meanwhile";
  if (!facts.after.is_null()) {
    if (std::string advice = AdviceOnRoom(facts, summary); !advice.empty()) return advice;
  }
  if (nothing && missed > 0) return "the job's programs did not get to the daemon" + times + ": all was read from the source";
  if (nothing) return AdviceOnNothing(facts, summary);
  if (facts.after.is_null() || missed + NumberOf(fallback, "timeout") > 0)
    return "the daemon was not always there" + times + ": see its log" + (facts.own_daemon ? " with --keep" : "");
  if (Sum(conversions) > SumOf(reads, "count") / 10 && Sum(conversions) > 100)
    return "many descriptors had to become real (" + Listed(conversions) + "): read before forking, or use libtier directly";
  if (const std::uint64_t names = NumberOf(fallback, "path") + NumberOf(PartOf(summary, "real_opens"), "path"); names > 10 && names > NumberOf(summary, "opened") / 4)
    return "many files were named through \"..\", or through links out of a source: name them by the source's own path";
  if (part("bypass") > all / 4) {
    if (std::string advice = AdviceOnOutside(summary); !advice.empty()) return advice;
  }
  if (part("bypass") > all / 4 && facts.limited_space && NumberOf(fallback, "no_frame") > 0)
    return "a good part was read around the cache: of an address space that is limited (ulimit -v) an eighth is used for it; a higher limit, or none, holds more";
  if (part("bypass") > all / 4) return "a good part was read around the cache: a larger --ram or --ssd holds more";
  if (const std::uint64_t own = NumberOf(PartOf(summary, "source_uses"), "mmap"), mappings = own + NumberOf(summary, "maps"); own > mappings / 4)
    return std::to_string(own) + " of " + Plural(mappings, "mapping") + " showed the source's own file, and what is read so is not counted: the cache shows what is mapped for reading alone (torch.load(mmap=True) and safetensors may write), within the file, 64 chunks and a quarter of --ram at most";
  if (const std::uint64_t given = NumberOf(summary, "source_read_bytes"), served = all - part("bypass"); facts.own_daemon && given > served + served / 4 + kLittleMore)
    return "the source gave " + tierd::config::HumanSize(given - served) + " more than was served: files were brought that nobody read, or of which a part was read; a larger --ram or --ssd keeps them";
  if (part("ssd") > all / 2) return "most came from the SSD: a larger --ram is faster";
  if (IsMostNew(summary)) return "most was read for the first time: a second epoch, or tierctl prefetch before the first, is faster";
  return "nothing to improve here";
}

// In tenths of a percent, which are 100 % together: the largest part has what the others leave.
std::string Shares(const json& counts) {
  std::uint64_t all = 0;
  const Origin* largest = kOrigins;
  for (const Origin& origin : kOrigins) {
    all += NumberOf(counts, origin.name);
    if (NumberOf(counts, origin.name) > NumberOf(counts, largest->name)) largest = &origin;
  }
  const auto tenths = [&](const Origin& origin) {
    const std::uint64_t part = NumberOf(counts, origin.name);
    return part == 0 ? 0 : std::max(1L, std::lround(1000.0 * static_cast<double>(part) / static_cast<double>(all)));
  };
  long left = 1000;
  for (const Origin& origin : kOrigins) left -= &origin == largest ? 0 : tenths(origin);
  std::string text;
  for (const Origin& origin : kOrigins) {
    if (NumberOf(counts, origin.name) == 0) continue;
    const long share = &origin == largest ? left : tenths(origin);
    text += (text.empty() ? "" : ", ") + std::string(origin.words) + " " + std::to_string(share / 10) + (share == 1000 ? "%" : "." + std::to_string(share % 10) + "%");
  }
  return text.empty() ? "nothing" : text;
}

// Why the source was read, reads of what lies below none among it.
std::string Around(const json& summary) {
  const std::uint64_t outside = ReadsOutside(summary);
  const std::string reasons = Listed(PartOf(summary, "fallback"));
  if (outside == 0) return reasons;
  return (PartOf(summary, "fallback").empty() ? "" : reasons + ", ") + "below no source " + std::to_string(outside);
}

// Whose reads the first line counts.
std::string Readers(const json& summary) {
  const std::uint64_t processes = NumberOf(summary, "processes");
  const bool own = FlagOf(summary, "own_daemon"), killed = IsKilled(NumberOf(summary, "exit_code"));
  if (FlagOf(summary, "all_jobs")) return "all jobs of this daemon";
  const bool known = SumOf(PartOf(summary, "reads"), "count") + Sum(PartOf(summary, "fallback")) > 0;
  if (FlagOf(summary, "preload") && processes == 0 && known) return killed ? "processes that were killed before they could report" : "processes that did not report";
  return std::to_string(processes) + (processes == 1 ? " process" : " processes") + (killed && !own && processes > 0 ? " that reported" : "") +
         (NumberOf(summary, "other_libc") > 0 ? " (not served: " + OtherLibc(NumberOf(summary, "other_libc")) + ")" : "");
}

// "epoch 1: first read 100%; epochs 2-90: ram 100%"
std::string EpochText(const json& epochs) {
  std::vector<std::pair<std::string, std::string>> said;  // numbers, what
  std::size_t first = 1;
  for (std::size_t i = 1; i <= epochs.size(); ++i) {
    const std::string what = Shares(PartOf(epochs[i - 1], "reads"));
    if (said.empty() || said.back().second != what) {
      first = i;
      said.emplace_back("epoch " + std::to_string(i), what);
    } else {
      said.back().first = "epochs " + std::to_string(first) + "-" + std::to_string(i);
    }
  }
  if (said.empty()) return "epochs: not known";
  std::string text;
  for (std::size_t i = 0; i < said.size(); ++i) {
    const bool left_out = said.size() > kMostEpochs && i >= kMostEpochs / 2 && i + kMostEpochs / 2 < said.size();
    if (left_out && i > kMostEpochs / 2) continue;
    text += (text.empty() ? "" : "; ") + (left_out ? std::string("...") : said[i].first + ": " + said[i].second);
  }
  return text;
}

}  // namespace

json AddUpReports(const std::string& path) {
  json sum = json::object();
  std::uint64_t processes = 0;
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const json parsed = json::parse(line, nullptr, false);
    if (!parsed.is_object()) continue;
    if (!parsed.contains("other_libc")) ++processes;
    Add(sum, parsed);
  }
  sum["processes"] = processes;
  return sum;
}

json Summary(const JobFacts& facts) {
  json summary = {{"version", TIERD_VERSION}, {"exit_code", facts.exit_code}, {"seconds", facts.seconds}, {"preload", facts.preload}, {"own_daemon", facts.own_daemon}};
  summary["signal"] = facts.signal_number == 0 ? json() : json(facts.signal_number);
  summary["all_jobs"] = !facts.own_daemon && AsksDaemon(facts) && facts.after.is_object();
  summary["reads"] = Reads(facts);
  summary["epochs"] = Epochs(facts);
  summary["fallback"] = Fallbacks(facts);
  for (const char* name : {"processes", "opened", "stats", "listings", "links", "maps", "memory_copies", "invalidations", "other_libc"}) summary[name] = NumberOf(facts.reports, name);
  for (const char* name : {"conversions", "real_opens", "source_uses"}) summary[name] = PartOf(facts.reports, name);
  const std::uint64_t earlier = SourceBytes(facts.before), later = SourceBytes(facts.after);
  const std::uint64_t given = later >= earlier ? later - earlier : later;
  const std::uint64_t served = SumOf(summary["reads"], "bytes") - NumberOf(summary["reads"]["bypass"], "bytes");
  summary["source_read_bytes"] = IsGone(facts) ? json() : json(given);
  summary["source_saved_bytes"] = IsGone(facts) ? json() : json(served > given ? served - given : 0);
  summary["daemon"] = facts.after;
  summary["advice"] = Advice(facts, summary);
  return summary;
}

std::string SummaryText(const json& summary) {
  using tierd::config::HumanSize;
  const json& reads = PartOf(summary, "reads");
  const std::uint64_t all = SumOf(reads, "bytes");
  const std::uint64_t real = RealOpens(summary);
  const bool most_counted = real <= NumberOf(summary, "opened") / 100;
  const std::uint64_t saved = NumberOf(summary, "source_saved_bytes");
  json bytes = json::object();
  for (const Origin& origin : kOrigins) bytes[origin.name] = NumberOf(PartOf(reads, origin.name), "bytes");
  std::string text;
  const auto line = [&text](const std::string& words) { text += "tierd: " + tierd::Printable(words) + "\n"; };
  const bool is_known = !summary.at("source_read_bytes").is_null();
  if (!is_known && NumberOf(summary, "processes") == 0) {  // of those who could tell nobody is left
    line("what was read is not known: no process reported, and the daemon is gone; " + Span(RealOf(summary, "seconds")));
    for (const char* what : {"epochs", "what the source gave tierd", "around the cache", "descriptors made real"}) line(std::string(what) + ": not known");
    line(TextOf(summary, "advice"));
    return text;
  }
  // Where one would take what is in RAM now for what was saved.
  const std::uint64_t kept = NumberOf(bytes, "ram") + NumberOf(bytes, "ssd");
  const bool ahead = kept > NumberOf(bytes, "source") && IsMostNew(summary);
  line(HumanSize(all) + " in " + Plural(SumOf(reads, "count"), "read") + " of " + Readers(summary) + ", " + Span(RealOf(summary, "seconds")) +
       "; bytes: " + Shares(bytes) + (ahead ? " (most was brought just ahead of its first read)" : "") + (most_counted ? "" : "; not counted: what was read through " + Plural(real, "open") + " of the source's own files"));
  line(EpochText(ListOf(summary, "epochs")) + (most_counted || ListOf(summary, "epochs").empty() ? "" : " (of what was counted)"));
  line("the source gave tierd " + (is_known ? HumanSize(NumberOf(summary, "source_read_bytes")) : "what is not known") + " for " + HumanSize(all - NumberOf(bytes, "bypass")) + " served" +
       (!is_known ? "" : ": " + (saved > 0 ? HumanSize(saved) + " saved" : std::string("nothing saved yet"))));
  line("around the cache: " + Around(summary) + "; real from the start: " + Listed(PartOf(summary, "real_opens")) +
       "; the source's own file used for: " + Listed(PartOf(summary, "source_uses")));
  line("descriptors made real: " + Listed(PartOf(summary, "conversions")) + "; answered from the index: " + std::to_string(NumberOf(summary, "stats")) + " stat, " +
       std::to_string(NumberOf(summary, "listings")) + " listings");
  line(TextOf(summary, "advice"));
  return text;
}

}  // namespace tierctl::run
