#include "tierctl/cli_completion.h"

#include <algorithm>
#include <vector>

namespace tierctl {
namespace {

struct Word {
  std::string text;   // "--wait", "prefetch"
  std::string about;
};

// A verb with its aliases, "config get" for one below another.
struct VerbWords {
  std::vector<std::string> names;
  std::string about;
  std::vector<Word> options;
  std::vector<Word> below;
};

std::string FirstOf(std::string text, char end) { return text.substr(0, text.find(end)); }

std::vector<Word> OptionWords(const CLI::App& app) {
  std::vector<Word> words;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back({"--" + name, FirstOf(option->get_description(), ';')});
  }
  return words;
}

std::vector<const CLI::App*> VerbsOf(const CLI::App& app) { return app.get_subcommands([](const CLI::App*) { return true; }); }

VerbWords MakeVerb(const CLI::App& app, const std::string& prefix) {
  VerbWords verb{{prefix + app.get_name()}, FirstOf(app.get_description(), ';'), OptionWords(app), {}};
  for (const std::string& alias : app.get_aliases()) verb.names.push_back(prefix + alias);
  for (const CLI::App* below : VerbsOf(app)) verb.below.push_back({below->get_name(), FirstOf(below->get_description(), ';')});
  return verb;
}

// All verbs, those below others behind them.
std::vector<VerbWords> AllVerbs(const CLI::App& app) {
  std::vector<VerbWords> verbs;
  for (const CLI::App* verb : VerbsOf(app)) {
    verbs.push_back(MakeVerb(*verb, ""));
    for (const CLI::App* below : VerbsOf(*verb)) verbs.push_back(MakeVerb(*below, verb->get_name() + " "));
  }
  return verbs;
}

std::string Joined(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) text += (text.empty() ? "" : " ") + word.text;
  return text;
}

std::vector<Word> Names(const std::vector<VerbWords>& verbs) {
  std::vector<Word> names;
  for (const VerbWords& verb : verbs) {
    for (const std::string& name : verb.names)
      if (name.find(' ') == std::string::npos) names.push_back({name, verb.about});
  }
  return names;
}

// Names for a `case` of the shell: 'load'|'warmup'.
std::string Pattern(const VerbWords& verb) {
  std::string text;
  for (const std::string& name : verb.names) text += (text.empty() ? "'" : "|'") + name + "'";
  return text;
}

std::string VerbsWithVerbs(const std::vector<VerbWords>& verbs) {
  std::string text;
  for (const VerbWords& verb : verbs)
    if (!verb.below.empty()) text += (text.empty() ? "" : "|") + verb.names[0];
  return text;
}

// Which verb stands on the line: the words before the cursor are in `words[1..last)`. The command of `run` is not ours.
std::string FindVerb(const std::vector<VerbWords>& verbs, const char* words, const char* first, const char* last) {
  const std::string word = std::string("${") + words + "[i]}";
  return std::string("  local verb='' i\n  for ((i = ") + first + "; i < " + last + "; i++)); do\n    case " + word + " in\n      --socket) ((i++)) ;;\n      -*) ;;\n      *)\n        verb=\"${verb:+$verb }" + word +
         "\"\n        case $verb in " + VerbsWithVerbs(verbs) + ") ;; *) break ;; esac ;;\n    esac\n  done\n";
}

std::string Bash(const CLI::App& app) {
  const std::vector<VerbWords> verbs = AllVerbs(app);
  std::string text = "# bash completion of tierctl: source <(tierctl completion bash)\n_tierctl() {\n  local word=${COMP_WORDS[COMP_CWORD]} options='' words=''\n" +
                     FindVerb(verbs, "COMP_WORDS", "1", "COMP_CWORD") + "  case $verb in\n    '') words='" + Joined(Names(verbs)) + "' ;;\n";
  for (const VerbWords& verb : verbs) text += "    " + Pattern(verb) + ") options='" + Joined(verb.options) + "' words='" + Joined(verb.below) + "' ;;\n";
  return text + "  esac\n  COMPREPLY=()\n  if [[ $word == -* ]]; then\n    COMPREPLY=($(compgen -W \"$options " + Joined(OptionWords(app)) +
         "\" -- \"$word\"))\n  elif [[ -n $words ]]; then\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n  fi\n}\ncomplete -o default -F _tierctl tierctl\n";
}

// A string between single quotes; `more` gets a backslash.
std::string Quoted(const std::string& text, const std::string& more = "") {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else out += more.find(c) == std::string::npos ? std::string(1, c) : std::string("\\") + c;
  }
  return out + "'";
}

std::string Described(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) text += " " + Quoted(word.text + ":" + word.about, "");
  return text;
}

std::string Zsh(const CLI::App& app) {
  const std::vector<VerbWords> verbs = AllVerbs(app);
  std::string text = "#compdef tierctl\n# zsh completion of tierctl: tierctl completion zsh >\"${fpath[1]}/_tierctl\"\n_tierctl() {\n  local -a options below\n" +
                     FindVerb(verbs, "words", "2", "CURRENT") + "  case $verb in\n    '') below=(" + Described(Names(verbs)) + ") ;;\n";
  for (const VerbWords& verb : verbs) text += "    " + Pattern(verb) + ") options=(" + Described(verb.options) + ") below=(" + Described(verb.below) + ") ;;\n";
  return text + "  esac\n  if [[ ${words[CURRENT]} == -* ]]; then\n    options+=(" + Described(OptionWords(app)) +
         ")\n    _describe option options\n  elif (( $#below )); then\n    _describe verb below\n  else\n    _files\n  fi\n}\n"
         "if [[ ${funcstack[1]} == _tierctl ]]; then _tierctl \"$@\"; else compdef _tierctl tierctl; fi\n";
}

std::string FishOptions(const std::vector<Word>& options, const std::string& when) {
  std::string text;
  for (const Word& option : options) text += "complete -c tierctl" + when + " -l " + option.text.substr(2) + " -d " + Quoted(option.about, "\\") + "\n";
  return text;
}

std::string Fish(const CLI::App& app) {
  const std::vector<VerbWords> verbs = AllVerbs(app);
  std::string text = "# fish completion of tierctl: tierctl completion fish >~/.config/fish/completions/tierctl.fish\n" + FishOptions(OptionWords(app), "");
  for (const Word& name : Names(verbs)) text += "complete -c tierctl -n __fish_use_subcommand -f -a " + name.text + " -d " + Quoted(name.about, "\\") + "\n";
  for (const VerbWords& verb : verbs) {
    std::string seen;
    for (const std::string& name : verb.names) seen += " " + name;
    const std::string condition = verb.names[0].find(' ') == std::string::npos ? "__fish_seen_subcommand_from" + seen
                                                                               : "__fish_seen_subcommand_from " + FirstOf(verb.names[0], ' ') + "; and __fish_seen_subcommand_from" +
                                                                                     verb.names[0].substr(verb.names[0].find(' '));
    text += FishOptions(verb.options, " -n " + Quoted(condition, "\\"));
    for (const Word& below : verb.below)
      text += "complete -c tierctl -n " + Quoted("__fish_seen_subcommand_from " + verb.names[0] + "; and not __fish_seen_subcommand_from " + Joined(verb.below), "\\") + " -f -a " + below.text + " -d " +
              Quoted(below.about, "\\") + "\n";
  }
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return Bash(app);
  if (shell == "zsh") return Zsh(app);
  return shell == "fish" ? Fish(app) : "";
}

}  // namespace tierctl
