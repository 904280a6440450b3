// What doctor looks at: each function examines one thing about this machine and says OK, WARN or FAIL with a remedy. They change nothing, leave nothing
// behind, and need no daemon. Blocking; what may hang runs in a child process with a deadline (isolated.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tierctl::doctor {

enum class Verdict : std::uint8_t { kOk, kWarn, kFail };
const char* VerdictName(Verdict verdict);  // "ok", "warn", "fail"

struct Check {
  std::string name;  // "io_uring", "memory.pages", ...
  Verdict verdict = Verdict::kOk;
  std::string detail;  // what was found, one line
  std::string remedy;  // a command or a sentence; "" with kOk
};

// kernel.cc
std::string FirstLine(const std::string& path);  // of a file of the kernel's; "" if it cannot be read
Check KernelVersion(const std::string& release);  // as uname gives it: "6.1.0-18-amd64"
Check IoUring();
Check UserNamespaces();
Check TimeNamespace(const std::string& offsets_path);  // /proc/self/timens_offsets

// memory.cc
std::vector<Check> HugePages(const std::string& sys_root);  // "/sys"
Check FileDescriptors();
Check LockedMemory();
Check MemoryLimit(std::uint64_t wanted_bytes, std::uint64_t min_available_bytes);

// slurm.cc
// Where Slurm's configuration may lie; `named` is $SLURM_CONF, or null.
std::vector<std::string> SlurmConfigFiles(const char* named);
// By the first of those files that can be read; none, none: this is no node of Slurm's, or it keeps that to itself.
std::optional<Check> SlurmAccounting(const std::vector<std::string>& files);

// disk.cc: the SSD tier's directory, which need not exist yet.
std::vector<Check> Disk(const std::string& directory, bool measure);

// source.cc
std::vector<Check> Source(const std::string& path);

// isolated.cc
// Runs `examine` in a child process and takes what it found; after `timeout_ms` the child is killed and left to the kernel (it may hang in the file system for minutes),
// and `hung` is the answer.
std::vector<Check> Isolated(const std::function<std::vector<Check>()>& examine, int timeout_ms, Check hung);

}  // namespace tierctl::doctor
