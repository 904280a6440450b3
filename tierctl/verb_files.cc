// ls, stat, explain: what is known about files.
#include <cstdio>
#include <utility>

#include "tierctl/client/paths.h"
#include "tierctl/terminal/progress.h"
#include "tierctl/verbs.h"
#include "tierd/config/units.h"

namespace tierctl {
namespace {

using nlohmann::json;
using tierd::config::HumanSize;

std::string EntryLine(const Output& output, const json& entry) {
  const std::string name = output.Name(PathOf(entry));
  if (TextOf(entry, "kind") != "file") return "         -       -       -  -  " + name + (TextOf(entry, "kind") == "directory" ? "/" : "") + "\n";
  const std::uint64_t size = NumberOf(entry, "size_bytes");
  char line[64];
  std::snprintf(line, sizeof line, "%10s  %6s  %6s  %s  ", HumanSize(size).c_str(), Percent(NumberOf(entry, "ram_bytes"), size).c_str(),
                Percent(NumberOf(entry, "ssd_bytes"), size).c_str(), FlagOf(entry, "pinned") ? "P" : "-");
  return line + name + "\n";
}

struct Listing {
  std::string opening;  // what is printed before all entries, and not before the daemon has named one
  bool first = true;    // no entry has been printed
};

// Writes one page; with JSON the entries follow one another in one array that List opens and closes.
void PrintEntries(Context& context, const json& page, Listing* listing) {
  for (const json& entry : ListOf(page, "entries")) {
    context.output.Print(std::exchange(listing->opening, ""));
    if (context.output.json()) {
      context.output.Print((listing->first ? "\n" : ",\n") + entry.dump(-1, ' ', false, json::error_handler_t::replace));
    } else if (context.command.null_separated) {
      context.output.Print(PathOf(entry) + std::string(1, '\0'));
    } else {
      context.output.Print(EntryLine(context.output, entry));
    }
    listing->first = false;
  }
}

// Nothing is known there: is there something at all?
Answer OrAbsent(Answer answer, const std::string& path) {
  answer.message = WhyAbsent(path);
  if (!answer.message.empty()) answer.exit = kExitError;
  return answer;
}

// All pages of one path.
Answer ListPath(Context& context, const std::string& path, Listing* listing, bool* walked) {
  std::string after;
  bool none = true;
  std::size_t entries = 0;
  Progress progress(context.output);
  for (;;) {
    Answer page = context.client.GetPath("/v1/files", path, std::string("&limit=1000") + (context.command.recursive ? "&recursive=1" : "") +
                                                                (after.empty() ? "" : "&after=" + PercentEncoded(after)));
    if (!page.ok()) return page;
    PrintEntries(context, page.body, listing);
    entries += ListOf(page.body, "entries").size();
    if (!context.output.stdout_is_terminal()) progress.Show([&] { return std::to_string(entries) + " entries of " + Escaped(path); });
    none = none && ListOf(page.body, "entries").empty();
    *walked = FlagOf(page.body, "walked");
    const std::string next = TextOf(page.body, "next");
    if (next.empty() || next == after) return none ? OrAbsent(std::move(page), path) : page;
    after = next;
  }
}

void PrintFacts(Context& context, const json& file) {
  Table table(0);
  for (const auto& [name, value] : file.items()) {
    if (name == "why" || name == "path" || name == "path_b64") continue;
    std::string text = value.is_object() ? Escaped(PathOf(value)) : value.is_string() ? Escaped(value.get_ref<const std::string&>()) : value.dump();
    if (name.ends_with("_bytes")) text += " (" + HumanSize(NumberOf(file, name.c_str())) + ")";
    table.Row({"  " + name, text});
  }
  context.output.Print(context.output.Name(PathOf(file)) + "\n" + table.Text());
}

void PrintReasons(Context& context, const json& file) {
  context.output.Print(context.output.Name(PathOf(file)) + "\n");
  for (const json& sentence : ListOf(file, "why")) {
    if (sentence.is_string()) context.output.Print("  " + Escaped(sentence.get_ref<const std::string&>()) + "\n");
  }
}

int ForEachFile(Context& context, const std::string& more, void (*print)(Context&, const json&)) {
  json files = json::array();
  bool some = false;
  int exit_code = kExitOk;
  for (const std::string& given : context.command.paths) {
    const std::string path = AbsolutePath(given, context.working_directory);
    Answer answer = context.client.GetPath("/v1/file", path, more);
    const bool may_ask = answer.ok() && answer.body.value("answered", true);  // a source that hangs for the daemon would hang for this process, too
    if (may_ask && !answer.body.value("known", true)) answer = OrAbsent(std::move(answer), path);
    if (answer.exit == kExitUnreachable) return context.output.Fail(answer);
    if (!answer.ok()) {
      exit_code = context.output.Fail(answer);
      continue;
    }
    some = true;
    if (context.output.json()) files.push_back(answer.body);
    else print(context, answer.body);
  }
  if (context.output.json()) context.output.PrintJson({{"files", files}});
  return PartlyDone(exit_code, some);
}

}  // namespace

int List(Context& context) {
  bool all_walked = true, some = false;
  int exit_code = kExitOk;
  const bool table = !context.output.json() && !context.command.null_separated;
  Listing listing{.opening = context.output.json() ? "{\"entries\": [" : table ? "      SIZE     RAM     SSD  P  PATH\n" : ""};
  for (const std::string& given : context.command.paths) {
    const std::string path = AbsolutePath(given, context.working_directory);
    bool walked = true;
    const Answer answer = ListPath(context, path, &listing, &walked);
    if (answer.exit == kExitUnreachable && !listing.opening.empty()) return context.output.Fail(answer);
    if (!answer.ok()) exit_code = context.output.Fail(answer);
    some = some || answer.ok();
    all_walked = all_walked && walked && answer.exit != kExitUnreachable;
    if (answer.ok() && !walked && table) context.output.Message(path + ": not all of it is known yet; tierctl du " + path + " lists it");
    if (answer.exit == kExitUnreachable) break;
  }
  if (context.output.json()) context.output.Print(listing.opening + (listing.first ? "" : "\n") + "], \"walked\": " + (all_walked ? "true" : "false") + "}\n");
  return PartlyDone(exit_code, some);
}

int Stat(Context& context) { return ForEachFile(context, "", PrintFacts); }

int Explain(Context& context) { return ForEachFile(context, "&ask=1", PrintReasons); }

}  // namespace tierctl
