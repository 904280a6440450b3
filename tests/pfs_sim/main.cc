// pfs_sim: a slow, faulty parallel file system over a directory. See README.md.
#include <stdio.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/pfs_sim/control.h"
#include "tests/pfs_sim/selftest.h"
#include "tests/pfs_sim/server.h"
#include "tests/pfs_sim/tree.h"

namespace pfs_sim {
namespace {

constexpr int kExitUsage = 64;

constexpr char kUsage[] =
    "usage: pfs_sim BACKING MOUNT [--control SOCKET] [--latency-us N] [--bandwidth BYTES_PER_S]\n"
    "               [--concurrency N] [--pid FILE] [--background] [--keep-cache] [--direct-io]\n"
    "               [--timeout-ms N] [--read-ahead-kib N]\n"
    "       pfs_sim ctl SOCKET COMMAND...\n"
    "       pfs_sim selftest [--threads N] [--files N] [--rounds N] [--latency-us N] [--bar N]\n"
    "       pfs_sim make-tree DIR [--files N] [--size S|lognormal:MEAN:SIGMA] [--dirs D] [--seed S]\n"
    "               [--version V]\n"
    "       pfs_sim check-tree DIR [the options of make-tree] [--threads N]\n";

// Flags of one invocation: each takes a value through its setter, or sets a bool.
class Flags {
 public:
  using Setter = std::function<bool(const std::string&)>;

  void Add(const std::string& name, Setter setter) { valued_[name] = std::move(setter); }
  void Add(const std::string& name, bool* flag) { plain_[name] = flag; }
  void Add(const std::string& name, std::string* text) {
    Add(name, [text](const std::string& value) { return *text = value, true; });
  }
  template <typename Number>
    requires std::is_arithmetic_v<Number>
  void Add(const std::string& name, Number* number) {
    Add(name, [number](const std::string& value) {
      const auto parsed = ParseNumber(value);
      if (parsed) *number = static_cast<Number>(*parsed);
      return parsed.has_value();
    });
  }

  // Collects what is not a flag in *rest. False after printing what is wrong.
  bool Parse(const std::vector<std::string>& words, std::vector<std::string>* rest) const {
    for (size_t i = 0; i < words.size(); ++i) {
      const auto plain = plain_.find(words[i]);
      const auto valued = valued_.find(words[i]);
      if (plain != plain_.end()) {
        *plain->second = true;
      } else if (valued != valued_.end()) {
        if (i + 1 == words.size() || !valued->second(words[i + 1])) {
          fprintf(stderr, "pfs_sim: bad or missing value for %s\n", words[i].c_str());
          return false;
        }
        ++i;
      } else if (words[i].starts_with("--")) {
        fprintf(stderr, "pfs_sim: unknown option %s\n%s", words[i].c_str(), kUsage);
        return false;
      } else {
        rest->push_back(words[i]);
      }
    }
    return true;
  }

 private:
  std::map<std::string, Setter> valued_;
  std::map<std::string, bool*> plain_;
};

int ServeCommand(const std::vector<std::string>& words) {
  ServerOptions options;
  Flags flags;
  flags.Add("--control", &options.control);
  flags.Add("--pid", &options.pid_file);
  flags.Add("--latency-us", &options.latency_us);
  flags.Add("--bandwidth", &options.bandwidth);
  flags.Add("--concurrency", &options.concurrency);
  flags.Add("--background", &options.background);
  flags.Add("--keep-cache", &options.fs.keep_cache);
  flags.Add("--direct-io", &options.fs.direct_io);
  flags.Add("--timeout-ms", &options.fs.timeout_ms);
  flags.Add("--read-ahead-kib", &options.read_ahead_kib);
  flags.Add("--die-with-parent", &options.die_with_parent);
  flags.Add("--ready-fd", &options.ready_fd);
  std::vector<std::string> rest;
  if (!flags.Parse(words, &rest)) return kExitUsage;
  if (rest.size() != 2) {
    fputs(kUsage, stderr);
    return kExitUsage;
  }
  options.backing = rest[0];
  options.mount = rest[1];
  return Serve(std::move(options));
}

int ControlCommand(const std::vector<std::string>& words) {
  if (words.size() < 2) {
    fputs(kUsage, stderr);
    return kExitUsage;
  }
  std::string line;
  for (size_t i = 1; i < words.size(); ++i) line += (i > 1 ? " " : "") + words[i];
  const CommandResult result = SendCommand(words[0], line);
  if (!result.ok) {
    fprintf(stderr, "pfs_sim: %s\n", result.text.c_str());
    return 1;
  }
  if (!result.text.empty()) puts(result.text.c_str());
  return 0;
}

int SelfTestCommand(const std::vector<std::string>& words) {
  SelfTestOptions options;
  Flags flags;
  flags.Add("--threads", &options.threads);
  flags.Add("--files", &options.files);
  flags.Add("--rounds", &options.rounds);
  flags.Add("--latency-us", &options.latency_us);
  flags.Add("--bar", &options.bar);
  std::vector<std::string> rest;
  if (!flags.Parse(words, &rest) || !rest.empty()) return kExitUsage;
  return SelfTest(options);
}

int TreeCommand(const std::string& verb, const std::vector<std::string>& words) {
  TreeOptions tree;
  int threads = 4;
  Flags flags;
  flags.Add("--files", &tree.files);
  flags.Add("--dirs", &tree.dirs);
  flags.Add("--seed", &tree.seed);
  flags.Add("--version", &tree.version);
  flags.Add("--threads", &threads);
  flags.Add("--size", [&tree](const std::string& value) {
    const auto rule = ParseSizeRule(value);
    if (rule) tree.size = *rule;
    return rule.has_value();
  });
  std::vector<std::string> rest;
  if (!flags.Parse(words, &rest)) return kExitUsage;
  if (rest.size() != 1) {
    fputs(kUsage, stderr);
    return kExitUsage;
  }
  if (verb == "make-tree") {
    std::string why;
    if (MakeTree(rest[0], tree, &why)) return 0;
    fprintf(stderr, "pfs_sim: %s\n", why.c_str());
    return 1;
  }
  const TreeCheck check = CheckTree(rest[0], tree, threads);
  printf("%llu files right, %llu wrong, %llu bytes\n",
         static_cast<unsigned long long>(check.files_right),
         static_cast<unsigned long long>(check.files_wrong),
         static_cast<unsigned long long>(check.bytes));
  if (check.files_wrong == 0) return 0;
  fprintf(stderr, "pfs_sim: %s\n", check.first_wrong.c_str());
  return 1;
}

int Main(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    fputs(kUsage, words.empty() ? stderr : stdout);
    return words.empty() ? kExitUsage : 0;
  }
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (words[0] == "ctl") return ControlCommand(rest);
  if (words[0] == "selftest") return SelfTestCommand(rest);
  if (words[0] == "make-tree" || words[0] == "check-tree") return TreeCommand(words[0], rest);
  return ServeCommand(words);
}

}  // namespace
}  // namespace pfs_sim

#if defined(__SANITIZE_THREAD__)
// Each rig of a test ends on its own: the second that TSan waits for late races would be paid 40 times.
extern "C" const char* __tsan_default_options() { return "atexit_sleep_ms=0"; }
#endif

int main(int argc, char** argv) {
  return pfs_sim::Main(std::vector<std::string>(argv + 1, argv + argc));
}
