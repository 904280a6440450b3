// The fixture: a pfs_sim server as a child process on a temporary mount, for tests and benchmarks.
//
//   std::string why;
//   auto rig = pfs_sim::Rig::Start({.latency_us = 1000}, &why);
//   if (rig == nullptr) GTEST_SKIP() << why;
//   ... write below rig->backing(), read below rig->mount() ...
//   rig->Control("fault add op=read path=*.bin nth=2 errno=EIO");
//   EXPECT_EQ(rig->Counters().opens, 1);
//
// The destructor ends the child by its pid, detaches the mount and removes the directories it made; if
// the test dies, the child dies with it and unmounts. Thread rule: the child dies with the *thread* that
// called Start (PR_SET_PDEATHSIG), so start it on one that outlives the Rig; the rest from any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pfs_sim {

struct RigOptions {
  std::string backing{};  // existing directory to serve; empty: a new temporary one, removed at the end
  uint64_t latency_us = 0;
  uint64_t bandwidth = 0;     // bytes/s of all reads together, 0: unlimited
  uint32_t concurrency = 0;   // requests in service, 0: unlimited
  uint32_t timeout_ms = 1000;  // entries and attributes; tests of staleness may shorten it
  bool keep_cache = false;
  bool direct_io = false;
};

struct OpCounts {
  uint64_t count = 0;
  uint64_t errors = 0;
  uint64_t latency_us = 0;  // that its answers were made to wait, in sum
};

struct RigCounters {
  std::map<std::string, OpCounts> ops;  // by operation name; see README.md
  uint64_t lookups = 0;
  uint64_t getattrs = 0;
  uint64_t opens = 0;  // open requests; files created through the mount count as "create"
  uint64_t reads = 0;
  uint64_t readdirs = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t in_flight = 0;
  uint64_t max_concurrency = 0;
  uint64_t hung = 0;
  uint64_t faults = 0;
  uint64_t interrupts = 0;
  uint64_t open_handles = 0;
};

struct RigPathCounters {
  uint64_t opens = 0;
  uint64_t reads = 0;
  uint64_t bytes = 0;
};

class Rig {
 public:
  // Null when it cannot be started; *why says the reason (most often: FUSE is not available here).
  static std::unique_ptr<Rig> Start(const RigOptions& options, std::string* why);
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  const std::string& mount() const { return mount_; }
  const std::string& backing() const { return backing_; }
  const std::string& socket() const { return socket_; }
  pid_t pid() const { return pid_; }

  // The body of the answer, or "error: SENTENCE".
  std::string Control(const std::string& command) const;
  RigCounters Counters() const;
  // By path relative to the mount, of paths that start with `prefix`.
  std::map<std::string, RigPathCounters> PathCounters(const std::string& prefix = "") const;

  // Ends the server with `signal` (0: it ends by itself) and waits until the mount is gone. True if it
  // went within 10 s and, but for SIGKILL, the server's exit code was 0 (a sanitizer's report in the
  // server makes it another).
  bool Stop(int signal);

 private:
  Rig() = default;
  bool Launch(const RigOptions& options, std::string* why);
  std::vector<std::string> Arguments(const RigOptions& options, int ready_fd) const;

  std::string base_;     // temporary directory holding mount point, socket and perhaps the backing
  std::string mount_;
  std::string backing_;
  std::string socket_;
  pid_t pid_ = -1;  // -1: not running
};

}  // namespace pfs_sim
