#include "tierctl/run/ledger.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "tierctl/client/control_client.h"

namespace tierctl::run {
namespace {

using nlohmann::json;
using tierd::UniqueFd;

constexpr char kDoor[] = "door";
constexpr std::string_view kRecord = ".json", kJoined = ".joined";
constexpr std::size_t kMostRecordBytes = 256 << 10;
constexpr int kTurnStepMs = 20;

std::string PathOfLedger(const std::string& base, uid_t uid) { return base + "/tierd-ledger-" + std::to_string(uid); }

// The directory, if it is the user's alone.
UniqueFd OpenOwn(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) return UniqueFd();
  return fd;
}

bool IsSameFile(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

std::string ReadRecord(int fd) {
  std::string text(kMostRecordBytes, '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

json ToJson(const DaemonRecord& record) {
  const DaemonOptions& options = record.options;
  return {{"job", record.identity.job}, {"cgroup", record.identity.cgroup}, {"mounts", record.identity.mounts}, {"binary", record.binary}, {"sources", options.sources},
          {"ram", options.ram}, {"ssd", options.ssd}, {"policy", options.policy}, {"keep", record.keep}, {"ram_auto", record.ram_auto}, {"ssd_auto", record.ssd_auto},
          {"scratch", record.scratch}, {"short_scratch", record.short_scratch}, {"socket", record.socket}, {"control", record.control}, {"lifeline", record.lifeline}};
}

std::optional<DaemonRecord> FromJson(const std::string& text) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  DaemonRecord record;
  record.identity = {TextOf(document, "job"), TextOf(document, "cgroup"), NumberOf(document, "mounts")};
  record.binary = TextOf(document, "binary");
  for (const json& source : ListOf(document, "sources"))
    if (source.is_string()) record.options.sources.push_back(source.get<std::string>());
  record.options.ram = TextOf(document, "ram");
  record.options.ssd = TextOf(document, "ssd");
  record.options.policy = TextOf(document, "policy");
  record.keep = FlagOf(document, "keep");
  record.ram_auto = FlagOf(document, "ram_auto");
  record.ssd_auto = FlagOf(document, "ssd_auto");
  record.scratch = TextOf(document, "scratch");
  record.short_scratch = TextOf(document, "short_scratch");
  record.socket = TextOf(document, "socket");
  record.control = TextOf(document, "control");
  record.lifeline = TextOf(document, "lifeline");
  return record;
}

// Of the memory controller (v1), else of the one hierarchy there is (v2). All tasks of a Slurm step count as
// one: they have its limit, and end with it.
std::string MemoryCgroup(const std::string& cgroups) {
  std::istringstream lines(cgroups);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_memory = controllers.find(",memory,") != std::string::npos;
    if (is_memory || (controllers == ",," && found.empty())) found = line.substr(second + 1);
    if (is_memory) break;
  }
  if (const std::size_t step = found.find("/step_"); step != std::string::npos) found.resize(std::min(found.find('/', step + 1), found.size()));
  return found;
}

}  // namespace

JobIdentity IdentityOfJob(const tierd::config::GetEnvironment& environment, const std::string& cgroups, std::uint64_t mounts) {
  JobIdentity identity{"", MemoryCgroup(cgroups), mounts};
  constexpr std::array<std::array<const char*, 2>, 3> kBatchSystems{{{"SLURM_JOB_ID", "Slurm"}, {"PBS_JOBID", "PBS"}, {"LSB_JOBID", "LSF"}}};
  for (const auto& [variable, system] : kBatchSystems) {
    const std::string id = environment(variable).value_or("");
    if (id.empty()) continue;
    const std::string index = std::string_view(system) == "LSF" ? environment("LSB_JOBINDEX").value_or("") : "";
    identity.job = std::string(system) + " job " + id + (index.empty() || index == "0" ? "" : "[" + index + "]");
    break;
  }
  return identity;
}

JobIdentity OwnIdentity(const tierd::config::GetEnvironment& environment) {
  std::ostringstream cgroups;
  cgroups << std::ifstream("/proc/self/cgroup").rdbuf();
  struct stat mounts {};
  (void)::stat("/proc/self/ns/mnt", &mounts);
  return IdentityOfJob(environment, cgroups.str(), mounts.st_ino);
}

std::string Difference(const DaemonRecord& there, const DaemonRecord& wanted) {
  if (there.binary != wanted.binary) return "the tierd there is " + there.binary;
  if (there.keep != wanted.keep) return there.keep ? "--keep is given there" : "--keep is not given there";
  const auto named = [](const std::string& value) { return value.empty() ? std::string("not given") : value; };
  const struct {
    const char* option;
    const std::string &there, &wanted;
  } options[] = {{"--ram", there.options.ram, wanted.options.ram}, {"--ssd", there.options.ssd, wanted.options.ssd}, {"--policy", there.options.policy, wanted.options.policy}};
  for (const auto& [option, one, other] : options)
    if (!other.empty() && one != other) return std::string(option) + " is " + named(one) + " there";
  if (wanted.options.sources.empty() && !there.options.sources.empty()) return "--source is " + there.options.sources.front() + " there";
  return "";
}

std::string LedgerBase(const tierd::config::GetEnvironment& environment) {
  const std::string named = environment("TIERD_LEDGER").value_or("");
  return named.starts_with('/') ? named : "/tmp";
}

std::optional<Ledger> Ledger::Open(const std::string& base, uid_t uid, int patience_ms) {
  Ledger ledger;
  ledger.path_ = PathOfLedger(base, uid);
  for (int waited = 0;; waited += kTurnStepMs) {
    const bool there = ::mkdir(ledger.path_.c_str(), 0700) == 0 || errno == EEXIST;
    ledger.directory_ = OpenOwn(ledger.path_);
    struct stat info {};
    if (!there || (!ledger.directory_.valid() && ::lstat(ledger.path_.c_str(), &info) == 0)) return std::nullopt;  // somebody else's, or no place for it
    if (ledger.directory_.valid()) ledger.door_ = UniqueFd(::openat(ledger.directory_.get(), kDoor, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct stat held {}, named {};
    const bool locked = ledger.door_.valid() && ::flock(ledger.door_.get(), LOCK_EX | LOCK_NB) == 0;
    // What was locked is what lies there now: the last one may have removed it meanwhile.
    if (locked && ::fstat(ledger.door_.get(), &held) == 0 && ::stat((ledger.path_ + "/" + kDoor).c_str(), &named) == 0 && IsSameFile(held, named)) return ledger;
    if (waited >= patience_ms) return std::nullopt;
    ::usleep(kTurnStepMs * 1000);
  }
}

std::vector<Ledger::Entry> Ledger::Live() const {
  std::vector<Entry> live;
  DIR* const listing = ::fdopendir(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (listing == nullptr) return live;
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(listing)) {
    if (std::string_view(entry->d_name).ends_with(kRecord)) names.emplace_back(entry->d_name, std::string_view(entry->d_name).size() - kRecord.size());
  }
  ::closedir(listing);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const UniqueFd file(::openat(directory_.get(), (name + std::string(kRecord)).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file.valid()) continue;
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      Remove(name);
    } else if (auto record = FromJson(ReadRecord(file.get()))) {
      live.push_back({name, std::move(*record)});
    }
  }
  return live;
}

UniqueFd Ledger::Add(const std::string& name, const DaemonRecord& record) const {
  const std::string file = name + std::string(kRecord), text = ToJson(record).dump(-1, ' ', false, json::error_handler_t::replace);
  UniqueFd fd(::openat(directory_.get(), file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool written = fd.valid() && text.size() <= kMostRecordBytes && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (written) return fd;
  if (fd.valid()) Remove(name);
  return UniqueFd();
}

void Ledger::Remove(const std::string& name) const {
  for (const std::string_view end : {kRecord, kJoined}) ::unlinkat(directory_.get(), (name + std::string(end)).c_str(), 0);
}

void Ledger::MarkJoined(const std::string& name) const {
  const UniqueFd mark(::openat(directory_.get(), (name + std::string(kJoined)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

void Ledger::RemoveIfEmpty() {
  if (!Live().empty()) return;
  ::unlinkat(directory_.get(), kDoor, 0);
  ::rmdir(path_.c_str());
}

bool Ledger::WasJoined(const std::string& base, uid_t uid, const std::string& name) {
  return ::access((PathOfLedger(base, uid) + "/" + name + std::string(kJoined)).c_str(), F_OK) == 0;
}

}  // namespace tierctl::run
