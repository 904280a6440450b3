// status and version.
#include "tierctl/client/paths.h"
#include "tierctl/terminal/reads.h"
#include "tierctl/verbs.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using nlohmann::json;
using tierd::config::HumanSize;

std::string Size(const json& object, const char* name) { return HumanSize(NumberOf(object, name)); }

std::vector<std::string> TierRow(const Palette& palette, const char* name, const json& tier) {
  const std::string state = TextOf(tier, "state");
  if (state == "off" || state.empty()) return {name, state.empty() ? "?" : state, "", "", "", "", Escaped(TextOf(tier, "note"))};
  std::string about = std::string(name) == "RAM" ? TextOf(tier, "pages") + " pages" : TextOf(tier, "directory");
  const std::uint64_t allowed = NumberOf(tier, "allowed_bytes");
  if (allowed < NumberOf(tier, "capacity_bytes")) {
    about += ", only " + HumanSize(allowed) + " of " + Size(tier, "capacity_bytes") + " allowed now";
    if (const std::string bound = TextOf(tier, "bound_by"); !bound.empty()) about += " (" + bound + ")";
  }
  if (const std::uint64_t retired = NumberOf(tier, "retired_regions"); retired > 0) about += "; " + Plural(retired, "region") + " left alone for an hour: they could not be written, or not be read at the start";
  if (const std::uint64_t slow = NumberOf(tier, "slow_reads"); slow > 0) about += "; " + Plural(slow, "read") + " took the source instead, which answers sooner";
  if (const std::string note = TextOf(tier, "note"); !note.empty()) about += "; " + note;
  return {name, palette.State(state), Size(tier, "used_bytes"), Size(tier, "capacity_bytes"), std::to_string(NumberOf(tier, "objects")), Size(tier, "pinned_bytes"), Escaped(about)};
}

std::string Reads(const Palette& palette, const json& status) {
  const json& reads = PartOf(status, "reads");
  const std::uint64_t all = AllReads(reads, "count");
  Table table(3);
  table.Head({"READS FROM", "COUNT", "SHARE", "BYTES"}, palette);
  for (const ReadOrigin& origin : kReadOrigins) {
    const json& row = PartOf(reads, origin.name);
    table.Row({origin.name, std::to_string(NumberOf(row, "count")), Percent(NumberOf(row, "count"), all), Size(row, "bytes")});
  }
  return table.Text() + LeftOut(status);
}

std::string Sources(const Output& output, const json& status) {
  Table table(0);
  table.Head({"SOURCE", "STATE", "FS", "STALENESS", "POLICY", "ENGINE", "IN FLIGHT", "FILES", "READ", "PATH"}, output.palette());
  for (const json& source : ListOf(status, "sources")) {
    std::string staleness = TextOf(source, "staleness");
    if (staleness == "ttl") staleness += " " + Span(RealOf(source, "ttl_s"));
    std::string flight = std::to_string(NumberOf(source, "in_flight")) + "/" + std::to_string(NumberOf(source, "window"));
    if (const auto hung = NumberOf(source, "hung"); hung != 0) flight += ", " + std::to_string(hung) + " hung";
    table.Row({Escaped(TextOf(source, "name")), output.palette().State(TextOf(source, "state")), TextOf(source, "fs"), staleness, TextOf(source, "policy"), TextOf(source, "engine"), flight,
               std::to_string(NumberOf(source, "files")), Size(source, "read_bytes"), output.Name(PathOf(source))});
  }
  return table.Text();
}

// Epochs that have ended: what was read from the source above what any policy has to read, and misses above Belady's of those that could be judged.
std::string Regret(const Palette& palette, const json& status) {
  Table table(0);
  table.Head({"REGRET", "EPOCHS", "READ FROM SOURCE", "NEEDLESSLY", "LAST EPOCH", "MISSES ABOVE BELADY"}, palette);
  bool any = false;
  for (const json& source : ListOf(status, "sources")) {
    const json& regret = PartOf(source, "regret");
    const json& epochs = ListOf(regret, "epochs");
    if (epochs.empty()) continue;
    any = true;
    const std::uint64_t judged = NumberOf(regret, "judged_reads");
    const std::uint64_t missed = NumberOf(regret, "judged_misses");
    const std::uint64_t above = missed - std::min(missed, NumberOf(regret, "least_misses"));
    table.Row({Escaped(TextOf(source, "name")), std::to_string(NumberOf(epochs.back(), "epoch") + 1), Size(regret, "source_bytes"), Size(regret, "regret_bytes"), Size(epochs.back(), "regret_bytes"),
               judged == 0 ? "-" : Percent(above, judged) + " of reads"});
  }
  return any ? "\n" + table.Text() : "";
}

std::string Warnings(const Palette& palette, const json& status) {
  std::string text;
  if (const json reasons = BypassReasons(status); !reasons.empty()) text += palette.Attention("bypass, by reason: " + Listed(reasons)) + "\n";
  for (const json& source : ListOf(status, "sources")) {
    const json& ahead = PartOf(source, "look_ahead");
    if (FlagOf(ahead, "resting"))
      text += palette.Attention("look-ahead of " + Escaped(TextOf(source, "name")) + " rests: of " + Size(ahead, "brought_bytes") + " brought ahead " + Size(ahead, "unused_bytes") + " left unused") + "\n";
    if (const std::uint64_t dropped = NumberOf(source, "policy_dropped_answers"); dropped != 0)
      text += palette.Wrong("policy " + TextOf(source, "policy") + " of " + Escaped(TextOf(source, "name")) + ": " + Plural(dropped, "answer") + " of it were wrong and not followed") + "\n";
  }
  for (const std::string& note : TextsOf(status, "option_notes")) text += palette.Attention(Escaped(note)) + "\n";
  if (const auto failures = NumberOf(status, "integrity_failures"); failures != 0) text += palette.Wrong("integrity failures (not served): " + std::to_string(failures)) + "\n";
  if (const auto frozen = NumberOf(status, "leases_frozen"); frozen != 0) text += Plural(frozen, "lease") + " held over a fork: the memory stays until the children end, too\n";
  return text;
}

}  // namespace

int Status(Context& context) {
  const Answer answer = context.client.Get("/v1/status");
  if (!answer.ok()) return context.output.Fail(answer);
  const json& status = answer.body;
  if (context.output.json()) {
    context.output.PrintJson(status);
    return kExitOk;
  }
  const Palette& palette = context.output.palette();
  std::string text = "tierd " + TextOf(status, "version") + " pid " + std::to_string(NumberOf(status, "pid")) + ": " + palette.State(TextOf(status, "state")) + ", up " +
                     Span(RealOf(status, "uptime_s")) + ", " + Plural(NumberOf(status, "sessions"), "client") + ", " +
                     Plural(NumberOf(status, "jobs_running"), "job") + " running\n";
  const std::string config = TextOf(status, "config_file");
  const std::string metrics = TextOf(status, "metrics_address");
  text += "in " + Escaped(TextOf(status, "runtime_directory")) + ", configuration " + (config.empty() ? "none" : Escaped(config)) + ", metrics " +
          (metrics.empty() ? "off" : "http://" + metrics + "/metrics") + "\n\n";
  Table tiers(0);
  tiers.Head({"TIER", "STATE", "USED", "CAPACITY", "OBJECTS", "PINNED", ""}, palette);
  tiers.Row(TierRow(palette, "RAM", PartOf(PartOf(status, "tiers"), "ram")));
  tiers.Row(TierRow(palette, "SSD", PartOf(PartOf(status, "tiers"), "ssd")));
  text += tiers.Text() + "\n" + Sources(context.output, status) + "\n" + Reads(palette, status) + Regret(palette, status);
  const std::string warnings = Warnings(palette, status);
  context.output.Print(text + (warnings.empty() ? "" : "\n" + warnings));
  return kExitOk;
}

int Version(Context& context) {
  const Answer answer = context.client.Get("/v1/version");
  if (context.output.json()) {
    context.output.PrintJson({{"tierctl", TIERD_VERSION}, {"api", 1}, {"daemon", answer.ok() ? answer.body : json()}});
    return kExitOk;
  }
  context.output.Print("tierctl " TIERD_VERSION "\n");
  if (answer.ok()) {
    context.output.Print("tierd " + TextOf(answer.body, "version") + " pid " + std::to_string(NumberOf(answer.body, "pid")) + "\n");
  } else {
    context.output.Message(answer.message);
  }
  return kExitOk;
}

}  // namespace tierctl
