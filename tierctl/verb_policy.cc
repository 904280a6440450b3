// policy list, show, set, prioritize: which policies there are, which source has which, another one at run time, and what files are worth to the application.
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>

#include "tierctl/client/paths.h"
#include "tierctl/verbs.h"
#include "tierd/config/edit_distance.h"

namespace tierctl {
namespace {

using nlohmann::json;

// "source.NAME.policy" of the configuration, as {NAME, {policy, parameters}}.
json SourcesOf(const json& config) {
  json sources = json::array();
  for (const json& value : ListOf(config, "values")) {
    const std::string key = TextOf(value, "key");
    constexpr std::string_view kBegin = "source.", kEnd = ".policy";
    if (!key.starts_with(kBegin) || !key.ends_with(kEnd) || key.size() <= kBegin.size() + kEnd.size()) continue;
    const std::string name = key.substr(kBegin.size(), key.size() - kBegin.size() - kEnd.size());
    json source = {{"source", name}, {"policy", TextOf(value, "value")}, {"parameters", ""}, {"origin", TextOf(value, "origin")}};
    for (const json& other : ListOf(config, "values"))
      if (TextOf(other, "key") == "source." + name + ".policy_parameters") source["parameters"] = TextOf(other, "value");
    sources.push_back(std::move(source));
  }
  return sources;
}

std::string UsersOf(const json& sources, const std::string& policy) {
  std::string text;
  for (const json& source : sources)
    if (TextOf(source, "policy") == policy) text += (text.empty() ? "" : ",") + TextOf(source, "source");
  return text.empty() ? "-" : text;
}

// Sources that the command names, all if it names none. A name that there is not: a message and nothing.
bool WantedSources(Context& context, json* sources) {
  if (context.command.key.empty()) return true;
  std::vector<std::string> names;
  for (const json& source : *sources) {
    names.push_back(TextOf(source, "source"));
    if (names.back() != context.command.key) continue;
    *sources = json::array({source});
    return true;
  }
  const std::string near = tierd::config::Nearest(context.command.key, names);
  context.output.Message("unknown source " + context.command.key + (near.empty() ? "" : "; did you mean " + near + "?"));
  return false;
}

// One line of a list of priorities.
struct Priority {
  double value = 0;
  std::string path;
};
std::optional<Priority> PriorityOf(const std::string& line) {
  Priority priority;
  const auto [end, code] = std::from_chars(line.data(), line.data() + line.size(), priority.value);
  if (code != std::errc() || !std::isfinite(priority.value) || priority.value < 0 || end == line.data() + line.size() || (*end != ' ' && *end != '\t')) return std::nullopt;
  priority.path.assign(end + 1, line.data() + line.size());
  if (priority.path.empty()) return std::nullopt;
  return priority;
}

}  // namespace

int PolicyList(Context& context) {
  const Answer known = context.client.Get("/v1/policies");
  if (!known.ok()) return context.output.Fail(known);
  if (context.output.json()) {
    context.output.PrintJson(known.body);
    return kExitOk;
  }
  const Answer config = context.client.Get("/v1/config");
  if (!config.ok()) return context.output.Fail(config);
  const json sources = SourcesOf(config.body);
  Table table(0);
  table.Row({"POLICY", "SOURCES", "FROM", "WHAT IT DOES"});
  for (const json& policy : ListOf(known.body, "policies")) {
    const std::string path = TextOf(policy, "path");
    table.Row({TextOf(policy, "name"), Escaped(UsersOf(sources, TextOf(policy, "name"))), path.empty() ? "built in" : Escaped(path), Escaped(TextOf(policy, "summary"))});
  }
  context.output.Print(table.Text());
  return kExitOk;
}

int PolicyShow(Context& context) {
  const Answer config = context.client.Get("/v1/config");
  if (!config.ok()) return context.output.Fail(config);
  json sources = SourcesOf(config.body);
  if (!WantedSources(context, &sources)) return kExitError;
  const Answer status = context.client.Get("/v1/status");
  for (json& source : sources)
    for (const json& running : ListOf(status.body, "sources"))
      if (TextOf(running, "name") == TextOf(source, "source")) source["dropped_answers"] = NumberOf(running, "policy_dropped_answers");
  if (context.output.json()) {
    context.output.PrintJson({{"sources", sources}});
    return kExitOk;
  }
  Table table(0);
  table.Row({"SOURCE", "POLICY", "PARAMETERS", "WRONG ANSWERS", "ORIGIN"});
  for (const json& source : sources) {
    const std::string parameters = TextOf(source, "parameters");
    table.Row({Escaped(TextOf(source, "source")), TextOf(source, "policy"), parameters.empty() ? "-" : Escaped(parameters), std::to_string(NumberOf(source, "dropped_answers")), Escaped(TextOf(source, "origin"))});
  }
  context.output.Print(table.Text());
  return kExitOk;
}

int PolicySet(Context& context) {
  const Answer config = context.client.Get("/v1/config");
  if (!config.ok()) return context.output.Fail(config);
  json sources = SourcesOf(config.body);
  if (!WantedSources(context, &sources)) return kExitError;
  json applied = json::array();
  int failure = kExitOk;
  bool some = false;
  for (const json& source : sources) {
    const Answer answer = context.client.Patch("/v1/config", {{"key", "source." + TextOf(source, "source") + ".policy"}, {"value", context.command.value}});
    if (!answer.ok()) failure = context.output.Fail(answer);
    if (failure == kExitUnreachable) break;
    some |= answer.ok();
    for (const json& change : ListOf(answer.body, "applied")) applied.push_back(change);
  }
  if (failure != kExitOk && !some) return failure;
  if (context.output.json()) {
    context.output.PrintJson({{"applied", applied}, {"restart", json::array()}});
    return PartlyDone(failure, some);
  }
  for (const json& change : applied) context.output.Print(Escaped(TextOf(change, "key") + ": " + TextOf(change, "from") + " -> " + TextOf(change, "to")) + "\n");
  if (applied.empty() && failure == kExitOk) context.output.Message("nothing changed");
  return PartlyDone(failure, some);
}

int PolicyPrioritize(Context& context) {
  constexpr std::size_t kPerRequest = 1000;
  const std::string& name = context.command.list_file;
  std::ifstream file;
  if (name != "-") {
    file.open(name, std::ios::binary);
    if (!file) return context.output.Fail(kExitError, name + ": " + std::strerror(errno));
  }
  std::istream& in = name == "-" ? std::cin : file;
  std::uint64_t files = 0, heard = 0, number = 0;
  std::vector<std::string> paths;
  std::vector<double> priorities;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::optional<Priority> priority = PriorityOf(line);
    if (!priority) return context.output.Fail(kExitUsage, name + ":" + std::to_string(number) + ": not a priority (0 or more), a space and a path");
    paths.push_back(std::move(priority->path));
    priorities.push_back(priority->value);
  }
  if (in.bad()) return context.output.Fail(kExitError, name + ": cannot be read to its end");
  auto next = priorities.begin();
  for (const json& batch : PathBatches(paths, context.working_directory, kPerRequest)) {
    const auto end = next + static_cast<std::ptrdiff_t>(batch.size());
    const Answer answer = context.client.Post("/v1/policies/priorities", {{"paths", batch}, {"priorities", std::vector<double>(next, end)}});
    if (!answer.ok()) return PartlyDone(context.output.Fail(answer), files != 0);
    files += NumberOf(answer.body, "files");
    heard += NumberOf(answer.body, "heard");
    next = end;
  }
  const std::uint64_t said = paths.size();
  if (context.output.json()) {
    context.output.PrintJson({{"files", files}, {"unknown", said - files}, {"heard", heard}});
    return kExitOk;
  }
  context.output.Message(Plural(files, "file") + " told of" + (said > files ? ", " + std::to_string(said - files) + " not known" : "") +
                         (heard < files ? "; the policy does not listen: tierctl policy set importance" : ""));
  return kExitOk;
}

}  // namespace tierctl
