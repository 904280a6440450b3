// policy try, trace start, trace stop: what is learned from reads beside what is done with them.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "tierctl/client/paths.h"
#include "tierctl/verbs.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using nlohmann::json;

// The body of a request about one source.
json BodyFor(const Command& command) { return command.key.empty() ? json::object() : json{{"source", command.key}}; }

std::string Rate(const json& counts, const char* misses) {
  const std::uint64_t reads = NumberOf(counts, "reads");
  return Percent(reads - std::min(reads, NumberOf(counts, misses)), reads);
}

constexpr double kEnoughSeen = .95;  // below it, figures may be those of another dataset

std::string SeenText(double seen) { return Percent(static_cast<std::uint64_t>(std::llround(1e6 * seen)), 1'000'000); }
// Of an answer of a daemon that does not say: all.
double SeenOf(const json& object) { return object.contains("seen_ratio") ? RealOf(object, "seen_ratio") : 1; }

// Of the files, that are looked at.
std::string ShareText(double share) { return share >= 1 ? "all" : "1 in " + std::to_string(std::llround(1 / std::max(share, 1e-9))); }

void AddTried(Table& table, const std::string& source, const json& tried) {
  for (const json& one : ListOf(tried, "tried")) {
    const json& all = PartOf(one, "all");
    const json& last = PartOf(one, "last_epoch");
    const std::string parameters = TextOf(one, "parameters");
    const bool is_void = NumberOf(one, "dropped_answers") != 0;
    const auto rate = [&](const json& counts) { return is_void ? std::string("void") : Rate(counts, "misses"); };
    table.Row({Escaped(source), TextOf(one, "policy") + (parameters.empty() ? "" : "(" + Escaped(parameters) + ")"), TextOf(one, "mode"), std::to_string(NumberOf(all, "reads")), rate(all),
               Rate(all, "daemon_misses"), rate(last), Rate(last, "daemon_misses"), ShareText(RealOf(one, "share")), SeenText(SeenOf(one))});
  }
}

// What makes the figures worth less than they look. True: less than a result.
bool WarnOfTried(Context& context, const std::string& source, const json& tried) {
  bool warned = false;
  for (const json& one : ListOf(tried, "tried")) {
    const std::string who = Escaped(source) + ": " + TextOf(one, "policy");
    if (const std::uint64_t dropped = NumberOf(one, "dropped_answers"); dropped != 0) {
      context.output.Message(who + ": its figures are void: " + Plural(dropped, "answer") + " of it named objects that are unknown, elsewhere or named twice");
      warned = true;
    }
    if (SeenOf(one) >= kEnoughSeen) continue;
    context.output.Message(who + ": it was told of " + SeenText(SeenOf(one)) + " of the reads: the others bypassed the cache without a question to the daemon, or were overwritten in a client's ring");
    warned = true;
  }
  return warned;
}

// What is tried for the source named, or for all.
int ShowTried(Context& context) {
  const Answer status = context.client.Get("/v1/status");
  if (!status.ok()) return context.output.Fail(status);
  json sources = json::array();
  bool warned = false;
  Table table(0);
  table.Row({"SOURCE", "POLICY", "KNOWS", "READS", "HITS", "DAEMON", "LAST EPOCH", "DAEMON", "OF FILES", "OF READS"});
  for (const json& source : ListOf(status.body, "sources")) {
    if (!context.command.key.empty() && TextOf(source, "name") != context.command.key) continue;
    sources.push_back({{"source", TextOf(source, "name")}, {"tried", source.value("tried", json::array())}});
    AddTried(table, TextOf(source, "name"), source);
    warned |= WarnOfTried(context, TextOf(source, "name"), source);
  }
  if (sources.empty()) return context.output.Fail(kExitError, "no source " + context.command.key);
  if (context.output.json()) context.output.PrintJson({{"sources", sources}});
  else context.output.Print(table.Text());
  return warned ? kExitPartial : kExitOk;
}

int PrintTrace(Context& context, const json& body) {
  const json& trace = PartOf(body, "trace");
  const bool lacks = !FlagOf(trace, "running") && SeenOf(trace) < kEnoughSeen;
  if (context.output.json()) {
    context.output.PrintJson(body);
    return lacks ? kExitPartial : kExitOk;
  }
  context.output.Print(context.output.Name(TextOf(trace, "path")) + "\n");
  if (!FlagOf(trace, "running")) {
    context.output.Message(Plural(NumberOf(trace, "accesses"), "read") + " of " + Plural(NumberOf(trace, "objects"), "object") + " in " +
                           tierd::config::HumanSize(NumberOf(trace, "bytes")) + ", " + std::to_string(NumberOf(trace, "lost")) + " lost" +
                           (NumberOf(trace, "lost") == 0 ? "" : ": the trace has " + SeenText(SeenOf(trace)) + " of what was read"));
  }
  return lacks ? kExitPartial : kExitOk;
}

}  // namespace

int PolicyTry(Context& context) {
  if (context.command.value.empty()) return ShowTried(context);
  json body = BodyFor(context.command);
  body["policy"] = context.command.value;
  if (!context.command.parameters.empty()) body["parameters"] = context.command.parameters;
  if (context.command.stop) body["stop"] = true;
  const Answer answer = context.client.Post("/v1/policies/try", body);
  if (!answer.ok()) return context.output.Fail(answer);
  if (context.output.json()) {
    context.output.PrintJson({{"sources", {{{"source", context.command.key}, {"tried", answer.body.value("tried", json::array())}}}}});
  } else {
    context.output.Message(context.command.stop ? context.command.value + " is no longer tried" : context.command.value + " is tried: tierctl policy try shows what it hits");
    for (const json& one : ListOf(answer.body, "tried")) {
      if (context.command.stop || TextOf(one, "policy") != context.command.value || !FlagOf(one, "takes_plans")) continue;
      context.output.Message("it hears of plans as the daemon's own policy does, from what that is told next; KNOWS says blind until then");
    }
  }
  return kExitOk;
}

int TraceStart(Context& context) {
  json body = BodyFor(context.command);
  const std::string& file = context.command.output_file;
  body["path"] = file.starts_with('/') ? file : context.working_directory + "/" + file;
  if (!context.command.most.empty()) body["most_bytes"] = tierd::config::ParseSize(context.command.most).value_or(0);
  const Answer answer = context.client.Post("/v1/trace", body);
  if (!answer.ok()) return context.output.Fail(answer);
  const int code = PrintTrace(context, answer.body);
  const std::string path = body["path"];
  if (::access(path.c_str(), F_OK) == 0) return code;
  if (errno != ENOENT && errno != ENOTDIR)
    return context.output.Fail(kExitError, "the trace runs, but " + path + " cannot be looked at from here: " + std::strerror(errno) + ". tierctl trace stop ends it");
  return context.output.Fail(kExitError, "the trace runs, but " + path + " is not there for this shell: the daemon sees other files (PrivateTmp of a systemd unit, a container). " +
                                             "tierctl trace stop ends it; name a file that both see, with a system unit one below /var/cache/tierd/USER");
}

int TraceStop(Context& context) {
  json body = BodyFor(context.command);
  body["stop"] = true;
  const Answer answer = context.client.Post("/v1/trace", body);
  return answer.ok() ? PrintTrace(context, answer.body) : context.output.Fail(answer);
}

}  // namespace tierctl
