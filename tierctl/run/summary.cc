#include "tierctl/run/summary.h"

#include <signal.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "tierctl/client/control_client.h"
#include "tierctl/terminal/output.h"
#include "tierctl/terminal/reads.h"
#include "tierd/base/printable.h"
#include "tierd/config/units.h"

namespace tierctl::run {
namespace {

using nlohmann::json;

constexpr std::size_t kMostEpochs = 12;  // said one by one in a line

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
  for (const ReadOrigin& origin : kReadOrigins) {
    const json& before = PartOf(PartOf(facts.before, "reads"), origin.name);
    const json& after = PartOf(PartOf(facts.after, "reads"), origin.name);
    const auto most = [&](const char* part, const char* what) {
      return std::max(NumberOf(PartOf(facts.reports, part), origin.name), ask_daemon ? Grown(before, after, what) : 0);
    };
    reads[origin.name] = {{"count", most("reads", "count")}, {"bytes", most("bytes", "bytes")}};
  }
  return reads;
}

// A part by reason, of the reports or, where more, of the daemon.
json ByReason(const JobFacts& facts, const char* part) {
  json counts = PartOf(facts.reports, part);
  if (!AsksDaemon(facts)) return counts;
  for (const auto& [reason, count] : PartOf(facts.after, part).items()) {
    const std::uint64_t grown = Grown(PartOf(facts.before, part), PartOf(facts.after, part), reason.c_str());
    if (grown > NumberOf(counts, reason.c_str())) counts[reason] = grown;
  }
  return counts;
}

// What was read through descriptors that are the source's own; bypassed reads include these.
json RealReads(const JobFacts& facts) {
  const json& reported = PartOf(facts.reports, "real_reads");
  json reads = {{"count", NumberOf(reported, "count")}, {"bytes", NumberOf(reported, "bytes")}};
  if (!AsksDaemon(facts)) return reads;
  for (const char* what : {"count", "bytes"})
    reads[what] = std::max(NumberOf(reads, what), Grown(PartOf(facts.before, "real_reads"), PartOf(facts.after, "real_reads"), what));
  return reads;
}

// Epoch by epoch (CONTROL.md says what one is), the sources taken together; only of a daemon of the job's own.
json Epochs(const JobFacts& facts) {
  json epochs = json::array();
  if (!facts.own_daemon) return epochs;
  for (const json& source : ListOf(facts.after, "sources")) {
    std::size_t i = 0;
    for (const json& epoch : ListOf(source, "epochs")) {
      if (i == epochs.size()) epochs.push_back(json::object());
      Add(epochs[i], epoch);
      epochs[i]["seconds"] = std::max(RealOf(epochs[i], "seconds"), RealOf(epoch, "seconds"));
      ++i;
    }
  }
  return epochs;
}

// Reads that no reason was counted for: of files below no source, which only the Python package and programs linked with libtier read through the library. Reads through a descriptor of
// the source's own are below one; the opens among the reasons have no read of libtier's.
std::uint64_t ReadsOutside(const json& summary) {
  const std::uint64_t fell_back = Sum(PartOf(summary, "fallback")), real = NumberOf(PartOf(summary, "real_reads"), "count");
  std::uint64_t reads = NumberOf(PartOf(PartOf(summary, "reads"), "bypass"), "count");
  reads -= std::min(reads, real);
  const std::uint64_t with_reason = fell_back - std::min(fell_back, NumberOf(PartOf(summary, "real_opens"), "not_cached"));
  return reads - std::min(reads, with_reason);
}

std::uint64_t ReadsGrown(const JobFacts& facts) {
  std::uint64_t sum = 0;
  for (const ReadOrigin& origin : kReadOrigins) sum += Grown(PartOf(PartOf(facts.before, "reads"), origin.name), PartOf(PartOf(facts.after, "reads"), origin.name), "count");
  return sum;
}

std::string PercentText(double share) { return std::to_string(std::lround(100 * share)) + "%"; }

// How much of what is read over and over the tiers can hold, and what the last whole epoch got from them.
struct Holding {
  double held = 1;    // of the bytes of an epoch's files
  double served = 1;  // of the bytes that the epoch read
};
std::optional<Holding> HoldingOf(const JobFacts& facts, const json& summary) {
  const json& epochs = ListOf(summary, "epochs");
  if (epochs.size() < 2) return std::nullopt;
  const auto files_of = [&](std::size_t i) { return NumberOf(epochs[i], "files"); };
  std::size_t last = epochs.size() - 1;
  if (2 * files_of(last) < files_of(last - 1)) --last;  // it has only begun
  if (last == 0) return std::nullopt;
  const json& bytes = PartOf(epochs[last], "bytes");
  const std::uint64_t set = NumberOf(epochs[last], "file_bytes"), kept = NumberOf(bytes, "ram") + NumberOf(bytes, "ssd"), all = Sum(bytes);
  std::uint64_t capacity = 0;
  for (const char* tier : {"ram", "ssd"}) capacity += NumberOf(PartOf(PartOf(facts.after, "tiers"), tier), "allowed_bytes");
  if (set == 0 || all == 0 || capacity == 0) return std::nullopt;
  return Holding{.held = std::min(1.0, static_cast<double>(capacity) / static_cast<double>(set)), .served = static_cast<double>(kept) / static_cast<double>(all)};
}

std::string MoreRoom(const JobFacts& facts) {
  const json& tiers = PartOf(facts.after, "tiers");
  const bool no_ssd = TextOf(PartOf(tiers, "ssd"), "state") == "off";
  const json& ram = PartOf(tiers, "ram");
  const bool bound = NumberOf(ram, "allowed_bytes") < NumberOf(ram, "capacity_bytes");
  const std::string more = bound ? "more memory for the job" : "a larger --ram";
  return more + (no_ssd ? ", or an SSD tier (--ssd)," : " or --ssd") + " holds more";
}

// The tiers hold a part, and the policy makes less of it than could be, or as much.
std::string AdviceOnHolding(const JobFacts& facts, const json& summary) {
  constexpr double kLittle = .1, kWorthwhile = .7;
  const std::optional<Holding> holding = HoldingOf(facts, summary);
  if (!holding || holding->held >= 1 || 1 - holding->served < kLittle || facts.limited_space) return "";
  const json& sources = ListOf(facts.after, "sources");
  const std::string policy = sources.size() == 1 ? TextOf(sources[0], "policy") : "";
  const std::string tiers = TextOf(PartOf(PartOf(facts.after, "tiers"), "ssd"), "state") == "off" ? "RAM holds " : "RAM and SSD hold ";
  std::string text = tiers + PercentText(holding->held) + " of what an epoch reads";
  if (holding->served >= kWorthwhile * holding->held) return text + ", and " + PercentText(holding->served) + " came from there: " + MoreRoom(facts);
  text += (policy.empty() ? ", and " : ", and " + policy + " makes ") + PercentText(holding->served) + (policy.empty() ? " came from there: " : " of it: ");
  return text + (policy == "auto" || policy.empty() ? "" : "--policy auto keeps a part of it; ") + MoreRoom(facts);
}

// What to do about reads and opens that found no room, if they are many; else "".
std::string AdviceOnRoom(const JobFacts& facts, const json& summary) {
  if (std::string advice = AdviceOnHolding(facts, summary); !advice.empty()) return advice;
  const json& fallback = PartOf(summary, "fallback");
  const std::uint64_t no_frame = NumberOf(fallback, "no_frame"), others = NumberOf(fallback, "no_daemon") + NumberOf(fallback, "timeout");
  // Under the preload library a file that finds no room is one open, in however many pieces it is read.
  const std::uint64_t not_cached = NumberOf(PartOf(summary, "real_opens"), "not_cached"), refused = not_cached > 0 ? std::min(no_frame, not_cached) : no_frame;
  const std::uint64_t all = not_cached > 0 ? NumberOf(summary, "opened") + Sum(PartOf(summary, "real_opens")) : std::max(AllReads(PartOf(summary, "reads"), "count"), refused);
  if (refused <= all / 4 || refused <= others) return "";
  const std::string what = std::to_string(refused) + " of " + Plural(all, not_cached > 0 ? "open" : "read") + " found no room in the cache";
  if (facts.limited_space) return what + ": of an address space that is limited (ulimit -v) an eighth is used for it; a higher limit, or none, holds more";
  return what + ": " + MoreRoom(facts);
}

// Processes that the library does nothing in.
std::string OtherLibc(std::uint64_t count) { return std::to_string(count) + (count == 1 ? " process" : " processes") + " whose C library is not glibc"; }

// What to say where the library served nothing and no daemon was missing.
std::string AdviceOnNothing(const JobFacts& facts, const json& summary) {
  if (NumberOf(facts.reports, "processes") == 0 && (facts.exit_code == 126 || facts.exit_code == 127))
    return "nothing below a source was read: exit code " + std::to_string(facts.exit_code) + " is that of a command that " + (facts.exit_code == 127 ? "is not found" : "cannot be executed");
  if (const std::uint64_t other = NumberOf(facts.reports, "other_libc"); other > 0) return "nothing was served: " + OtherLibc(other) + " (musl?); such programs read the source";
  if (!facts.preload) return "--no-preload: no program that uses libtier or the Python package read anything";
  if (const json reasons = BypassReasons(summary); !reasons.empty()) return "nothing was served: all bypassed the cache (" + Listed(reasons) + ")";
  if (NoReport(facts)) return "no read below a source had reached the daemon when the job was killed; is --source right?";
  if (const std::uint64_t reads = ReadsGrown(facts); reads > 0)
    return "no process of the job reported: it read nothing below a source, or was killed before it could (" + Plural(reads, "read") + " of all jobs of this daemon meanwhile)";
  return "nothing below a source was read by a program that could be served; is --source right?";
}

// Of what bypassed the cache, if the most of it lies below no source; else "".
std::string AdviceOnOutside(const json& summary) {
  const json& bypass = PartOf(PartOf(summary, "reads"), "bypass");
  const std::uint64_t outside = ReadsOutside(summary), reads = NumberOf(bypass, "count");
  if (outside <= reads / 2) return "";
  const std::string what = outside == reads ? tierd::config::HumanSize(NumberOf(bypass, "bytes")) + " in " + Plural(reads, "read") + (reads == 1 ? " lies" : " lie")
                                            : std::to_string(outside) + " of " + Plural(reads, "bypassed read") + (reads == 1 ? " was" : " were") + " of files that lie";
  return what + " below no source: if that is data, add its directory (--source)";
}

constexpr std::uint64_t kLittleMore = 64 << 20;  // what warm-up may have begun

// A read's origin is where its bytes were when they were asked for: of what is read for the first time most may have been brought just before. So it goes by what the source gave: more than two thirds of what
// was served, since two epochs take half of it and what is brought beside them. In a third epoch (`epochs` counts those that have begun) more has been read before.
bool IsMostNew(const json& summary) {
  const json& reads = PartOf(summary, "reads");
  const json& epochs = ListOf(summary, "epochs");
  if (epochs.size() > 2 || (epochs.size() == 2 && 2 * NumberOf(epochs[1], "files") >= NumberOf(epochs[0], "files") && !FlagOf(summary, "own_daemon"))) return false;
  const std::uint64_t served = AllReads(reads, "bytes") - NumberOf(PartOf(reads, "bypass"), "bytes");
  if (NumberOf(PartOf(reads, "source"), "bytes") > served / 2) return true;
  return served > 0 && FlagOf(summary, "own_daemon") && epochs.size() <= 2 && NumberOf(summary, "source_read_bytes") > served - served / 3;
}

// Of a daemon of the job's own that was killed.
std::string AdviceOnKilled(const JobFacts& facts) {
  const std::string what = "the daemon was killed while the job ran (signal " + std::to_string(facts.daemon_signal) + ")";
  if (facts.daemon_signal != SIGKILL) return what + ": what was read later is the source's; see its log with --keep";
  return what + (facts.signal_number == SIGKILL ? ", and so was the job" : ": what was read later is the source's") +
         "; where memory runs out the kernel ends the daemon first: a smaller --ram, or more memory for the job";
}

constexpr char kNothing[] = "nothing to improve here";

// The one thing most worth doing.
std::string Advice(const JobFacts& facts, const json& summary) {
  const json& reads = PartOf(summary, "reads");
  const std::uint64_t all = AllReads(reads, "bytes");
  const json& conversions = PartOf(summary, "conversions");
  const auto part = [&reads](const char* origin) { return NumberOf(PartOf(reads, origin), "bytes"); };
  if (!facts.without.empty()) return "without a cache: " + facts.without + "; all was read from the source";
  if (facts.before.is_null()) return "there was no daemon: all was read from the source";
  if (facts.daemon_signal != 0) return AdviceOnKilled(facts);
  const json& fallback = PartOf(summary, "fallback");
  const std::uint64_t missed = NumberOf(fallback, "no_daemon");
  const std::string times = missed > 0 ? " (no_daemon " + std::to_string(missed) + ")" : "";
  const bool nothing = all == 0 && NumberOf(summary, "opened") + NumberOf(summary, "stats") + NumberOf(summary, "listings") == 0;
  if (NoReport(facts) && !facts.own_daemon && AllReads(reads, "count") + Sum(fallback) > 0)
    return "the job's processes were killed before they could report: all figures are the daemon's, of all jobs that it served meanwhile";
  if (!facts.after.is_null()) {
    if (std::string advice = AdviceOnRoom(facts, summary); !advice.empty()) return advice;
  }
  if (nothing && missed > 0) return "the job's programs did not get to the daemon" + times + ": all was read from the source";
  if (nothing) return AdviceOnNothing(facts, summary);
  if (facts.after.is_null() || missed + NumberOf(fallback, "timeout") > 0)
    return "the daemon was not always there" + times + ": see its log" + (facts.own_daemon ? " with --keep" : "");
  if (Sum(conversions) > AllReads(reads, "count") / 10 && Sum(conversions) > 100)
    return "many conversions (" + Listed(conversions) + "): read before forking, or use libtier directly";
  if (const std::uint64_t names = NumberOf(fallback, "path") + NumberOf(PartOf(summary, "real_opens"), "path"); names > 10 && names > NumberOf(summary, "opened") / 4)
    return "many files were named through \"..\", or through links out of a source: name them by the source's own path";
  if (part("bypass") > all / 4) {
    if (std::string advice = AdviceOnOutside(summary); !advice.empty()) return advice;
  }
  if (part("bypass") > all / 4 && facts.limited_space && NumberOf(fallback, "no_frame") > 0)
    return "a good part bypassed the cache: of an address space that is limited (ulimit -v) an eighth is used for it; a higher limit, or none, holds more";
  if (part("bypass") > all / 4) return "a good part bypassed the cache: a larger --ram or --ssd holds more";
  if (const std::uint64_t own = NumberOf(PartOf(summary, "source_uses"), "mmap"), mappings = own + NumberOf(summary, "maps"); own > mappings / 4)
    return std::to_string(own) + " of " + Plural(mappings, "mapping") + " showed the source's own file, and what is read so is not counted: the cache shows what is mapped for reading alone (torch.load(mmap=True) and safetensors may write), within the file, 64 chunks and a quarter of --ram at most";
  if (const std::uint64_t given = NumberOf(summary, "source_read_bytes"), served = all - part("bypass"); facts.own_daemon && given > served + served / 4 + kLittleMore)
    return "the source gave " + tierd::config::HumanSize(given - served) + " more than was served: files were brought that nobody read, or of which a part was read; a larger --ram or --ssd keeps them";
  if (part("ssd") > all / 2) return "most came from the SSD: a larger --ram is faster";
  if (IsMostNew(summary)) return "most was read for the first time: a second epoch, or tierctl prefetch before the first, is faster";
  return kNothing;
}

// That, and the options that were not taken as they were written: they are mended for another run.
std::string WholeAdvice(const JobFacts& facts, const json& summary) {
  std::string text = Advice(facts, summary);
  if (text == kNothing && !facts.option_notes.empty()) text.clear();
  for (const std::string& note : facts.option_notes) text += (text.empty() ? "" : "; ") + note;
  return text;
}

// Why the cache was bypassed, reads of what lies below no source among it.
std::string WhyBypassed(const json& summary) {
  const std::uint64_t outside = ReadsOutside(summary);
  const json reasons = BypassReasons(summary);
  if (outside == 0) return Listed(reasons);
  return (reasons.empty() ? "" : Listed(reasons) + ", ") + "below no source " + std::to_string(outside);
}

// Whose reads the first line counts.
std::string Readers(const json& summary) {
  const std::uint64_t processes = NumberOf(summary, "processes");
  const bool own = FlagOf(summary, "own_daemon"), killed = IsKilled(NumberOf(summary, "exit_code"));
  if (FlagOf(summary, "all_jobs")) return "all jobs of this daemon";
  const bool known = AllReads(PartOf(summary, "reads"), "count") + Sum(PartOf(summary, "fallback")) > 0;
  if (FlagOf(summary, "preload") && processes == 0 && known) return killed ? "processes that were killed before they could report" : "processes that did not report";
  return std::to_string(processes) + (processes == 1 ? " process" : " processes") + (killed && !own && processes > 0 ? " that reported" : "") +
         (NumberOf(summary, "other_libc") > 0 ? " (not served: " + OtherLibc(NumberOf(summary, "other_libc")) + ")" : "");
}

std::string SecondsText(double least, double most) {
  const std::string from = Span(least), to = Span(most);
  return from == to ? from : from + " to " + to;
}

// Epochs of a line: "epoch 1: 3.1 s, source 100%", "epochs 2-90: 1.0 s to 1.4 s each, ram 100%". Those that got the same from everywhere are one item.
std::string EpochText(const json& summary) {
  const json& epochs = ListOf(summary, "epochs");
  struct Item {
    std::size_t first, last;
    double least, most;
    std::string shares;
  };
  std::vector<Item> items;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    const std::string shares = Shares(PartOf(epochs[i], "bytes"));
    const double seconds = RealOf(epochs[i], "seconds");
    seen += Sum(PartOf(epochs[i], "reads"));
    if (!items.empty() && items.back().shares == shares) {
      Item& item = items.back();
      item = {item.first, i + 1, std::min(item.least, seconds), std::max(item.most, seconds), shares};
    } else {
      items.push_back({i + 1, i + 1, seconds, seconds, shares});
    }
  }
  if (items.empty()) return "epochs: not known";
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const bool left_out = items.size() > kMostEpochs && i >= kMostEpochs / 2 && i + kMostEpochs / 2 < items.size();
    if (left_out && i > kMostEpochs / 2) continue;
    const bool one = item.first == item.last;
    const std::string which = one ? "epoch " + std::to_string(item.first) : "epochs " + std::to_string(item.first) + "-" + std::to_string(item.last);
    text += (text.empty() ? "" : "; ") + (left_out ? std::string("...") : which + ": " + SecondsText(item.least, item.most) + (one ? ", " : " each, ") + item.shares);
  }
  // What never asked the daemon is in no epoch.
  const std::uint64_t all = AllReads(PartOf(summary, "reads"), "count");
  if (seen < all - all / 20) text += " (of " + std::to_string(seen) + " of " + Plural(all, "read") + ")";
  return text;
}

std::string ConfirmedAnew(const json& summary) {
  const std::uint64_t ends = NumberOf(summary, "foreign_ends");
  if (ends == 0) return "";
  return "; all files confirmed anew after " + std::to_string(ends) + (ends == 1 ? " program" : " programs") + " that the library does not see";
}

// Nobody read a file below a source, whatever else was looked at.
bool NothingRead(const json& summary) {
  return AllReads(PartOf(summary, "reads"), "count") == 0 && NumberOf(summary, "opened") == 0 && Sum(PartOf(summary, "fallback")) == 0 && Sum(PartOf(summary, "real_opens")) == 0 && NumberOf(summary, "maps") == 0;
}

}  // namespace

json AddUpReports(const std::string& path) {
  json sum = json::object();
  std::uint64_t processes = 0;
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const json parsed = json::parse(line, nullptr, false);
    if (!parsed.is_object()) continue;
    if (!parsed.contains("other_libc") && !parsed.contains("only_waited")) ++processes;
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
  for (const char* part : {"fallback", "real_opens"}) summary[part] = ByReason(facts, part);
  summary["real_reads"] = RealReads(facts);
  for (const char* name : {"processes", "opened", "stats", "listings", "links", "maps", "memory_copies", "invalidations", "foreign_ends", "doubts", "other_libc"}) summary[name] = NumberOf(facts.reports, name);
  for (const char* name : {"conversions", "source_uses", "memory_added", "memory_refused"}) summary[name] = PartOf(facts.reports, name);
  const std::uint64_t earlier = SourceBytes(facts.before), later = SourceBytes(facts.after);
  const std::uint64_t given = later >= earlier ? later - earlier : later;
  const std::uint64_t served = AllReads(summary["reads"], "bytes") - NumberOf(summary["reads"]["bypass"], "bytes");
  summary["source_read_bytes"] = IsGone(facts) ? json() : json(given);
  summary["source_saved_bytes"] = IsGone(facts) ? json() : json(served > given ? served - given : 0);
  summary["daemon"] = facts.after;
  summary["option_notes"] = facts.option_notes;
  summary["advice"] = WholeAdvice(facts, summary);
  return summary;
}

std::string SummaryText(const json& summary) {
  using tierd::config::HumanSize;
  const json& reads = PartOf(summary, "reads");
  const std::uint64_t all = AllReads(reads, "bytes"), saved = NumberOf(summary, "source_saved_bytes");
  const json bytes = ByOrigin(reads, "bytes");
  std::string text;
  const auto line = [&text](const std::string& words) { text += "tierd: " + tierd::Printable(words) + "\n"; };
  const bool is_known = !summary.at("source_read_bytes").is_null();
  if (!is_known && NumberOf(summary, "processes") == 0) {  // of those who could tell nobody is left
    line("what was read is not known: no process reported, and the daemon is gone; " + Span(RealOf(summary, "seconds")));
    for (const char* what : {"epochs", "what the source gave", "bypass", "conversions"}) line(std::string(what) + ": not known");
    line(TextOf(summary, "advice"));
    return text;
  }
  if (NothingRead(summary)) {
    const std::uint64_t stats = NumberOf(summary, "stats"), listings = NumberOf(summary, "listings");
    line(stats + listings == 0 ? TextOf(summary, "advice") : "no file below a source was read; answered from the index: " + std::to_string(stats) + " stat, " + std::to_string(listings) + " listings");
    return text;
  }
  // Where one would take what is in RAM now for what was saved.
  const std::uint64_t kept = NumberOf(bytes, "ram") + NumberOf(bytes, "ssd"), bypassed = NumberOf(bytes, "bypass");
  const bool ahead = kept > NumberOf(bytes, "source") && IsMostNew(summary);
  const std::uint64_t from_source = NumberOf(summary, "source_read_bytes") + bypassed, more = from_source - std::min(from_source, all);
  const std::uint64_t mapped = NumberOf(PartOf(summary, "source_uses"), "mmap");
  line(HumanSize(all) + " in " + Plural(AllReads(reads, "count"), "read") + " of " + Readers(summary) + ", " + Span(RealOf(summary, "seconds")) + "; bytes: " + Shares(bytes) +
       (ahead ? " (most was brought just ahead of its first read)" : "") + (mapped == 0 ? "" : "; not counted: what was read through " + Plural(mapped, "mapping") + " of the source's own files"));
  line(EpochText(summary));
  line("the source gave " + (is_known ? HumanSize(NumberOf(summary, "source_read_bytes")) + " to tierd" : "tierd what is not known") + " and " + HumanSize(bypassed) + " by bypass, for " + HumanSize(all) + " read" +
       (!is_known ? "" : ": " + (saved > 0 ? HumanSize(saved) + " (" + Percent(saved, all) + ") saved" : more > 0 ? HumanSize(more) + " (" + Percent(more, all) + ") more than was read" : std::string("nothing saved yet"))));
  line("bypass: " + (bypassed == 0 && WhyBypassed(summary) == "none" ? "nothing" : Plural(NumberOf(PartOf(reads, "bypass"), "count"), "read") + ", " + HumanSize(bypassed) + "; why: " + WhyBypassed(summary)) +
       "; the source's own file used for: " + Listed(PartOf(summary, "source_uses")));
  line("conversions: " + Listed(PartOf(summary, "conversions")) + "; answered from the index: " + std::to_string(NumberOf(summary, "stats")) + " stat, " +
       std::to_string(NumberOf(summary, "listings")) + " listings" + ConfirmedAnew(summary));
  line(TextOf(summary, "advice"));
  return text;
}

}  // namespace tierctl::run
