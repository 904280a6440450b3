// A real tierd in a private directory, for end-to-end tests: started, asked, stopped, killed. Dies with the test.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tierd::e2e {

// A directory of its own, removed at the end.
class ScratchDir {
 public:
  ScratchDir();
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct ExitedDaemon {
  int code = 0;           // 128 + signal when killed
  std::string output;     // stdout and stderr
};

class DaemonProcess {
 public:
  struct Options {
    std::string source;                 // one source; "": those of `config`
    std::string ram = "128 MiB";
    std::string ssd = "on";             // "off", "on" = WORK/ssd, or a directory; "": as `config` has it
    std::string ssd_capacity = "1 GiB";
    std::vector<std::string> more;      // further arguments
    std::string config = "none";        // a file
    std::string binary = "";            // of another build or installation; default: ours
  };
  explicit DaemonProcess(const std::string& work) : work_(work) {}
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  // Starts and waits until it is ready; false (output() says why) when it ended instead or took 20 s.
  bool Start(const Options& options);
  // The two halves of Start, for who kills it on the way up.
  void Launch(const Options& options);
  bool AwaitReady();
  // True when the process has ended by itself; Kill(SIGKILL) then still has to be called.
  bool Ended() const;
  // SIGTERM and wait; the exit code.
  int Stop();
  void Kill(int signal_number);  // SIGKILL waits for the end
  // How the last one that ended did: 128 + signal when killed, 128 + SIGKILL being what Kill makes of one that had not ended by itself. -1: none has.
  int exit_code() const { return exit_code_; }
  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  std::string socket() const { return work_ + "/run/tierd.sock"; }
  std::string ssd_directory() const { return work_ + "/ssd"; }
  std::string output() const;

  // Control plane; null on failure. `body` empty: GET.
  nlohmann::json Control(const std::string& method, const std::string& target, const std::string& body = "") const;
  nlohmann::json Status() const { return Control("GET", "/v1/status"); }
  // The metrics as they are now.
  std::string Metrics() const;
  // The body of /metrics, which may be a quarter of a second old.
  std::string Page() const;
  // Reads of what is on the SSD that went to the source because it answers sooner (F08): on a machine with more to do than it can that happens.
  std::uint64_t SlowSsdReads() const;
  // Waits for a job to end; its last state.
  nlohmann::json WaitJob(std::uint64_t id, int ms = 120'000) const;
  // Prefetches and waits; the job.
  nlohmann::json Prefetch(const std::string& path, const std::string& tier = "ram", int ms = 120'000) const;

  // Runs tierd with arguments to its end.
  static ExitedDaemon Run(const std::vector<std::string>& arguments, const std::string& work);

 private:
  std::string AskControl(const std::string& request) const;  // the body; "": nobody answers
  void WaitForTheEnd();

  std::string work_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
  int starts_ = 0;
};

// Polls until `condition` holds, at most `ms`.
template <typename Condition>
bool Eventually(int ms, Condition condition);

void SleepMs(int ms);

template <typename Condition>
bool Eventually(int ms, Condition condition) {
  for (int waited = 0; waited <= ms; waited += 5) {
    if (condition()) return true;
    SleepMs(5);
  }
  return false;
}

}  // namespace tierd::e2e
