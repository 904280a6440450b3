// A memory cgroup of a test's own (version 1 or 2), with what runs in it. Root only.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/e2e/daemon_process.h"

namespace tierd::e2e {

class MemoryCgroup {
 public:
  // `ok()` says whether there is one; `reason()` why not.
  explicit MemoryCgroup(std::uint64_t limit_bytes) {
    const bool one = std::filesystem::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    path_ = (one ? "/sys/fs/cgroup/memory/tierd-test-" : "/sys/fs/cgroup/tierd-test-") + std::to_string(::getpid());
    limit_file_ = one ? "/memory.limit_in_bytes" : "/memory.max";
    events_file_ = one ? "/memory.oom_control" : "/memory.events";
    used_file_ = one ? "/memory.usage_in_bytes" : "/memory.current";
    std::error_code error;
    std::filesystem::create_directory(path_, error);
    if (error) reason_ = "cannot make a memory cgroup: " + error.message();
    else if (!SetLimit(limit_bytes)) reason_ = "the cgroup " + path_ + " takes no limit of memory";
  }
  ~MemoryCgroup() {
    std::error_code ignored;
    // Leaves when the last of those who ran in it is reaped.
    Eventually(2000, [&] { return std::filesystem::remove(path_, ignored) || !std::filesystem::exists(path_); });
  }
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  bool ok() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }
  const std::string& path() const { return path_; }
  bool SetLimit(std::uint64_t bytes) const { return Put(path_ + limit_file_, std::to_string(bytes)); }
  bool Enter(pid_t pid) const { return Put(path_ + "/cgroup.procs", std::to_string(pid)); }
  std::uint64_t used() const {
    std::uint64_t bytes = 0;
    std::ifstream(path_ + used_file_) >> bytes;
    return bytes;
  }
  std::uint64_t oom_kills() const {
    std::ifstream in(path_ + events_file_);
    std::string name;
    for (std::uint64_t value = 0; in >> name >> value;)
      if (name == "oom_kill") return value;
    return 0;
  }
  // A program that enters the cgroup and becomes tierd: for DaemonProcess::Options::binary.
  std::string Launcher(const std::string& directory, const std::string& tierd) const {
    const std::string script = directory + "/tierd-in-cgroup";
    std::ofstream(script) << "#!/bin/sh\necho $$ > " << path_ << "/cgroup.procs || exit 1\nexec " << tierd << " \"$@\"\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    return script;
  }

 private:
  static bool Put(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    out << text;
    out.close();
    return static_cast<bool>(out);
  }
  std::string path_;
  std::string limit_file_, events_file_, used_file_;
  std::string reason_;
};

}  // namespace tierd::e2e
