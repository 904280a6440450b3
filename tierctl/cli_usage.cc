// Turns what CLI11 says about a wrong command line into one line with a suggestion.
#include "tierctl/cli_usage.h"

#include <algorithm>

#include "tierd/config/edit_distance.h"

namespace tierctl {
namespace {

std::vector<std::string> NamesOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
    for (const std::string& alias : verb->get_aliases()) names.push_back(alias);
  }
  return names;
}

std::string OneOf(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

const CLI::App* ChosenVerb(const CLI::App& app) {
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  return chosen;
}

std::string FullName(const CLI::App* app) {
  std::string name = app->get_name();
  for (const CLI::App* parent = app->get_parent(); parent != nullptr; parent = parent->get_parent()) name = parent->get_name() + " " + name;
  return name;
}

}  // namespace

std::string SuggestionText(const std::string& word, const std::vector<std::string>& words) {
  const std::string near = tierd::config::Nearest(word, words);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

std::string Complaint(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  const CLI::App* verb = ChosenVerb(app);
  const std::string help = " (" + FullName(verb) + " --help)";
  const bool wants_verb = !verb->get_subcommands([](const CLI::App*) { return true; }).empty();
  const std::vector<std::string> extras = app.remaining(true);
  if (wants_verb) {
    // The first option that there is not, or the first word (not the value of --socket or --color), which should have been a verb.
    const std::vector<std::string> options = OptionNames(app);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string word = arguments[i].substr(0, arguments[i].find('='));
      if ((word == "--socket" || word == "--color") && word == arguments[i]) {
        ++i;
      } else if (word.starts_with('-')) {
        if (std::find(options.begin(), options.end(), word) == options.end()) return "unknown option " + word + SuggestionText(word, options) + help;
      } else if (arguments[i] != verb->get_name()) {
        return "unknown command \"" + arguments[i] + "\"" + SuggestionText(arguments[i], NamesOf(*verb)) + help;
      }
    }
    return (verb == &app ? std::string("no command given") : verb->get_name() + " needs one of: " + OneOf(NamesOf(*verb))) + help;
  }
  for (const std::string& extra : extras) {
    std::vector<std::string> options = OptionNames(*verb);
    for (std::string& option : OptionNames(app)) options.push_back(std::move(option));
    if (extra.starts_with('-')) return verb->get_name() + ": unknown option " + extra.substr(0, extra.find('=')) + SuggestionText(extra.substr(0, extra.find('=')), options) + help;
    return verb->get_name() + ": unexpected argument \"" + extra + "\"" + help;
  }
  std::string what = error.what();
  std::replace(what.begin(), what.end(), '\n', ' ');
  return verb->get_name() + ": " + what + help;
}

}  // namespace tierctl
