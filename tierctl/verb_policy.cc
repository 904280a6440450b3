// policy list, show, set: which policies there are, which source has which, and another one at run time.
#include "tierctl/paths.h"
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
  if (context.output.json()) {
    context.output.PrintJson({{"sources", sources}});
    return kExitOk;
  }
  Table table(0);
  table.Row({"SOURCE", "POLICY", "PARAMETERS", "ORIGIN"});
  for (const json& source : sources) {
    const std::string parameters = TextOf(source, "parameters");
    table.Row({Escaped(TextOf(source, "source")), TextOf(source, "policy"), parameters.empty() ? "-" : Escaped(parameters), Escaped(TextOf(source, "origin"))});
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
  for (const json& source : sources) {
    const Answer answer = context.client.Patch("/v1/config", {{"key", "source." + TextOf(source, "source") + ".policy"}, {"value", context.command.value}});
    if (!answer.ok()) return context.output.Fail(answer);
    for (const json& change : ListOf(answer.body, "applied")) applied.push_back(change);
  }
  if (context.output.json()) {
    context.output.PrintJson({{"applied", applied}, {"restart", json::array()}});
    return kExitOk;
  }
  for (const json& change : applied) context.output.Print(Escaped(TextOf(change, "key") + ": " + TextOf(change, "from") + " -> " + TextOf(change, "to")) + "\n");
  if (applied.empty()) context.output.Message("nothing changed");
  return kExitOk;
}

}  // namespace tierctl
