// unit_exec UNIT COMMAND...: runs a command with what a systemd unit takes away from it: the system-call filter (its sets as systemd-analyze expands them), address families,
// namespaces, writable code, set-uid modes, personality, capabilities, limits and umask; where it may, with the private tmpfs of its companion unit, mounted
// as BindPaths and BindReadOnlyPaths say. Not: what else the unit mounts (Protect*, Private*), which takes a service manager.
// What the unit says that this program does not know is an error, so that a new line of the unit is not left out by accident. Exit: the command's; 125 when it cannot.
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kCannot = 125;
using Words = std::vector<std::string>;

[[noreturn]] void Give(const std::string& why) {
  std::fprintf(stderr, "unit_exec: %s\n", why.c_str());
  std::exit(kCannot);
}

Words WordsOf(const std::string& text) {
  std::istringstream in(text);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Key and value of each line of [Service], in order.
std::vector<std::pair<std::string, std::string>> ServiceOf(const std::string& unit) {
  std::ifstream in(unit);
  if (!in) Give(unit + ": " + std::strerror(errno));
  std::vector<std::pair<std::string, std::string>> lines;
  std::string section;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    for (std::string more; line.back() == '\\' && std::getline(in, more);) line = line.substr(0, line.size() - 1) + more;
    if (line[0] == '[') section = line;
    else if (section == "[Service]") lines.emplace_back(line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
  }
  return lines;
}

// "@set" to its members, which may be sets, as `systemd-analyze syscall-filter` prints them.
std::map<std::string, Words> CallSets() {
  FILE* out = ::popen("systemd-analyze --no-pager syscall-filter 2>/dev/null", "r");
  if (out == nullptr) Give("systemd-analyze cannot be run");
  std::map<std::string, Words> sets;
  char line[512];
  std::string set;
  while (std::fgets(line, sizeof line, out) != nullptr) {
    const Words words = WordsOf(line);
    if (words.empty() || words[0][0] == '#') continue;
    if (line[0] == '@') set = words[0];
    else if (line[0] == ' ' && !set.empty()) sets[set].push_back(words[0]);
  }
  if (::pclose(out) != 0 || !sets.contains("@default")) Give("systemd-analyze says nothing about sets of system calls");
  return sets;
}

void Expand(const std::map<std::string, Words>& sets, const std::string& word, const std::function<void(const std::string&)>& each) {
  if (word[0] != '@') return each(word);
  const auto set = sets.find(word);
  if (set == sets.end()) Give("unknown set " + word);
  for (const std::string& member : set->second) Expand(sets, member, each);
}

class Filter {
 public:
  explicit Filter(std::uint32_t otherwise) : filter_(seccomp_init(otherwise)) {
    if (filter_ == nullptr || seccomp_attr_set(filter_, SCMP_FLTATR_CTL_NNP, 1) != 0) Give("no filter");
  }
  ~Filter() { seccomp_release(filter_); }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  // Calls that this libseccomp does not know cannot be told apart: they get what is otherwise.
  void Rule(std::uint32_t action, const std::string& name, const std::vector<scmp_arg_cmp>& when = {}) {
    const int call = seccomp_syscall_resolve_name(name.c_str());
    if (call == __NR_SCMP_ERROR) return;
    const int error = seccomp_rule_add_array(filter_, action, call, static_cast<unsigned>(when.size()), when.data());
    if (error != 0 && error != -EDOM && error != -EEXIST) Give(name + ": " + std::strerror(-error));
  }
  void Load() {
    if (const int error = seccomp_load(filter_); error != 0) Give(std::string("filter: ") + std::strerror(-error));
  }

 private:
  scmp_filter_ctx filter_;
};

constexpr std::uint32_t kRefuse = SCMP_ACT_ERRNO(EPERM);

scmp_arg_cmp Bits(unsigned argument, std::uint64_t mask, std::uint64_t value) { return SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, mask, value); }

void RestrictFamilies(const Words& families) {
  const std::map<std::string, std::uint64_t> known{{"AF_UNIX", 1}, {"AF_INET", 2}, {"AF_INET6", 10}};
  std::set<std::uint64_t> allowed;
  for (const std::string& family : families) {
    if (!known.contains(family)) Give("unknown family " + family);
    allowed.insert(known.at(family));
  }
  Filter filter(SCMP_ACT_ALLOW);
  for (std::uint64_t family = 0; family < 64; ++family)
    if (!allowed.contains(family)) filter.Rule(SCMP_ACT_ERRNO(EAFNOSUPPORT), "socket", {SCMP_CMP(0, SCMP_CMP_EQ, family, 0)});
  filter.Load();
}

void RestrictNamespaces() {
  Filter filter(SCMP_ACT_ALLOW);
  for (const std::uint64_t flag : {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET}) {
    filter.Rule(kRefuse, "unshare", {Bits(0, flag, flag)});
    filter.Rule(kRefuse, "clone", {Bits(0, flag, flag)});
  }
  filter.Rule(kRefuse, "setns");
  filter.Rule(SCMP_ACT_ERRNO(ENOSYS), "clone3");  // its flags cannot be seen: callers use clone
  filter.Load();
}

void DenyWritableCode() {
  Filter filter(SCMP_ACT_ALLOW);
  filter.Rule(kRefuse, "mmap", {Bits(2, PROT_EXEC | PROT_WRITE, PROT_EXEC | PROT_WRITE)});
  for (const char* call : {"mprotect", "pkey_mprotect"}) filter.Rule(kRefuse, call, {Bits(2, PROT_EXEC, PROT_EXEC)});
  filter.Load();
}

void RefuseSetUidModes() {
  Filter filter(SCMP_ACT_ALLOW);
  const std::map<std::string, unsigned> mode_at{{"chmod", 1}, {"fchmod", 1}, {"fchmodat", 2}, {"mkdir", 1}, {"mkdirat", 2}, {"mknod", 1}, {"mknodat", 2}};
  for (const auto& [call, argument] : mode_at)
    for (const std::uint64_t bit : {S_ISUID, S_ISGID}) filter.Rule(kRefuse, call, {Bits(argument, bit, bit)});
  filter.Load();
}

void Refuse(const Words& calls) {
  Filter filter(SCMP_ACT_ALLOW);
  for (const std::string& call : calls) filter.Rule(kRefuse, call);
  filter.Load();
}

void DropCapabilities() {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) ::prctl(PR_CAPBSET_DROP, capability);
}

void Limit(int resource, const std::string& value) {
  const rlim_t wanted = value == "infinity" ? RLIM_INFINITY : static_cast<rlim_t>(std::strtoull(value.c_str(), nullptr, 10));
  rlimit limit{wanted, wanted};
  rlimit now{};
  if (::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 || ::getrlimit(static_cast<__rlimit_resource_t>(resource), &now) != 0) return;
  limit = {now.rlim_max, now.rlim_max};  // who may not raise it
  ::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

// What the companion unit mounts and this unit binds, in a mount namespace of this process: /run is
// an empty directory there, so that nothing is left behind. Without privilege there is no such
// memory, as where the companion unit failed.
void MountFrames(const std::string& unit) {
  std::vector<std::pair<std::string, std::string>> lines = ServiceOf(unit);
  const std::string companion = unit.substr(0, unit.rfind('/') + 1) + "tierd-frames@.service";
  std::string command;
  for (const auto& [key, value] : ServiceOf(companion))
    if (key == "ExecStart") command = value;
  const auto named = [](std::string text) {
    for (std::size_t at; (at = text.find("%i")) != std::string::npos;) text.replace(at, 2, "unit");
    return text;
  };
  if (::unshare(CLONE_NEWNS) != 0) return;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0 || ::mount("run", "/run", "tmpfs", 0, "mode=0755") != 0) return;
  if (std::system(named(command).c_str()) != 0) Give(companion + ": " + named(command));
  for (const auto& [key, value] : lines) {
    if (key != "BindPaths" && key != "BindReadOnlyPaths") continue;
    const std::string paths = named(value);  // -FROM:TO
    const std::string from = paths.substr(1, paths.find(':') - 1), to = paths.substr(paths.find(':') + 1);
    if (::mkdir(to.c_str(), 0755) != 0 || ::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) != 0) Give(to + ": " + std::strerror(errno));
    const unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (key == "BindReadOnlyPaths" && ::mount(nullptr, to.c_str(), nullptr, flags, nullptr) != 0) Give(to + ": " + std::strerror(errno));
  }
  for (const auto& [key, value] : lines)
    if (key == "Environment" && value.starts_with("TIERD_PRIVATE_TMPFS=")) ::setenv("TIERD_PRIVATE_TMPFS", value.substr(value.find('=') + 1).c_str(), 1);
}

bool IsForAManager(const std::string& key) {
  static const std::set<std::string> kKeys{
      "Type", "NotifyAccess", "User", "ExecStart", "ExecReload", "Environment", "RuntimeDirectory", "RuntimeDirectoryMode", "CacheDirectory", "CacheDirectoryMode", "WatchdogSec",
      "BindPaths", "BindReadOnlyPaths", "Restart", "RestartSec", "TimeoutStartSec", "TimeoutStopSec", "OOMScoreAdjust", "CPUWeight", "TasksMax", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices",
      "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectHostname", "ProtectProc", "IPAddressDeny",
      "IPAddressAllow", "AmbientCapabilities", "KeyringMode", "SystemCallErrorNumber", "SystemCallArchitectures", "RestrictRealtime", "NoNewPrivileges"};
  return kKeys.contains(key);
}

// The filter on calls comes last: it refuses what the others need to be made.
void Apply(const std::string& unit) {
  MountFrames(unit);
  const std::map<std::string, Words> sets = CallSets();
  std::set<std::string> allowed;
  Expand(sets, "@default", [&](const std::string& call) { allowed.insert(call); });
  for (const auto& [key, value] : ServiceOf(unit)) {
    const Words words = WordsOf(value);
    if (key == "SystemCallFilter") {
      const bool out = value[0] == '~';
      for (const std::string& word : WordsOf(out ? value.substr(1) : value))
        Expand(sets, word, [&](const std::string& call) { out ? (void)allowed.erase(call) : (void)allowed.insert(call); });
    } else if (key == "RestrictAddressFamilies") {
      RestrictFamilies(words);
    } else if (key == "RestrictNamespaces") {
      RestrictNamespaces();
    } else if (key == "MemoryDenyWriteExecute") {
      DenyWritableCode();
    } else if (key == "RestrictSUIDSGID") {
      RefuseSetUidModes();
    } else if (key == "LockPersonality") {
      Refuse({"personality"});
    } else if (key == "CapabilityBoundingSet") {
      DropCapabilities();
    } else if (key == "LimitNOFILE") {
      Limit(RLIMIT_NOFILE, value);
    } else if (key == "LimitMEMLOCK") {
      Limit(RLIMIT_MEMLOCK, value);
    } else if (key == "LimitCORE") {
      Limit(RLIMIT_CORE, value);
    } else if (key == "UMask") {
      ::umask(static_cast<mode_t>(std::strtoul(value.c_str(), nullptr, 8)));
    } else if (!IsForAManager(key)) {
      Give(unit + ": " + key + " is not known here");
    }
  }
  Filter filter(kRefuse);
  for (const std::string& call : allowed) filter.Rule(SCMP_ACT_ALLOW, call);
  filter.Load();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) Give("usage: unit_exec UNIT COMMAND [ARGUMENT...]");
  Apply(argv[1]);
  ::execvp(argv[2], argv + 2);
  std::fprintf(stderr, "unit_exec: %s: %s\n", argv[2], std::strerror(errno));
  return 127;
}
