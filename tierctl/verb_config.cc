// config get, set, reload.
#include "tierctl/client/paths.h"
#include "tierctl/verbs.h"
#include "tierd/config/edit_distance.h"

namespace tierctl {
namespace {

using nlohmann::json;

void PrintChanges(Context& context, const json& changes) {
  if (context.output.json()) {
    context.output.PrintJson(changes);
    return;
  }
  const auto line = [](const json& change) { return Escaped(TextOf(change, "key") + ": " + TextOf(change, "from") + " -> " + TextOf(change, "to")) + "\n"; };
  for (const json& change : ListOf(changes, "applied")) context.output.Print(line(change));
  for (const json& change : ListOf(changes, "restart")) context.output.Message("at the next start: " + TextOf(change, "key") + ": " + TextOf(change, "from") + " -> " + TextOf(change, "to"));
  for (const std::string& note : TextsOf(changes, "notes")) context.output.Message(note);
  if (ListOf(changes, "applied").empty() && ListOf(changes, "restart").empty()) context.output.Message("nothing changed");
}

// `key` itself, or everything below it: "ram" stands for all of [ram].
bool IsWanted(const std::string& key, const std::string& wanted) {
  return wanted.empty() || key == wanted || (key.size() > wanted.size() && key.starts_with(wanted) && key[wanted.size()] == '.');
}

// Of a value that the configuration has already and the daemon not before its next start.
std::string PendingText(const json& value) {
  if (!value.contains("pending")) return "";
  const std::string pending = TextOf(value, "pending");
  return pending.empty() ? "gone" : pending;
}

}  // namespace

int ConfigGet(Context& context) {
  const Answer answer = context.client.Get("/v1/config");
  if (!answer.ok()) return context.output.Fail(answer);
  json wanted = json::array();
  std::vector<std::string> keys;
  for (const json& value : ListOf(answer.body, "values")) {
    keys.push_back(TextOf(value, "key"));
    if (IsWanted(keys.back(), context.command.key)) wanted.push_back(value);
  }
  if (wanted.empty()) {
    const std::string near = tierd::config::Nearest(context.command.key, keys);
    return context.output.Fail(kExitError, "unknown key " + context.command.key + (near.empty() ? "; tierctl config get lists them" : "; did you mean " + near + "?"));
  }
  if (context.output.json()) {
    context.output.PrintJson({{"file", answer.body.value("file", json())}, {"values", wanted}});
    return kExitOk;
  }
  if (wanted.size() == 1 && TextOf(wanted[0], "key") == context.command.key) {
    context.output.Print(Escaped(TextOf(wanted[0], "value")) + "\n");
    if (const std::string effective = TextOf(wanted[0], "effective"); !effective.empty()) context.output.Message("in effect: " + Escaped(effective));
    if (const std::string pending = PendingText(wanted[0]); !pending.empty()) context.output.Message("pending restart: " + Escaped(pending));
    return kExitOk;
  }
  Table table(0);
  table.Row({"KEY", "VALUE", "EFFECTIVE", "ORIGIN"});
  for (const json& value : wanted) {
    const std::string pending = PendingText(value);
    table.Row({TextOf(value, "key"), Escaped(TextOf(value, "value")) + (pending.empty() ? "" : " (pending restart: " + Escaped(pending) + ")"), Escaped(TextOf(value, "effective")),
               Escaped(TextOf(value, "origin"))});
  }
  context.output.Print(table.Text());
  return kExitOk;
}

int ConfigSet(Context& context) {
  const Answer answer = context.client.Patch("/v1/config", {{"key", context.command.key}, {"value", context.command.value}});
  if (!answer.ok()) return context.output.Fail(answer);
  PrintChanges(context, answer.body);
  return kExitOk;
}

int ConfigReload(Context& context) {
  const Answer answer = context.client.Post("/v1/config/reload", json::object());
  if (!answer.ok()) return context.output.Fail(answer);
  PrintChanges(context, answer.body);
  return kExitOk;
}

}  // namespace tierctl
