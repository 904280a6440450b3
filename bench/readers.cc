#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "bench/harness.h"

namespace bench {
namespace {

struct Report {
  ReaderResult result;
  double ended = 0;
};

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

bool WriteAll(int fd, const void* bytes, std::size_t size) {
  const ssize_t put = ::write(fd, bytes, size);
  return put >= 0 && static_cast<std::size_t>(put) == size;
}

bool ReadAll(int fd, void* bytes, std::size_t size) {
  std::size_t got = 0;
  while (got < size) {
    const ssize_t part = ::read(fd, static_cast<char*>(bytes) + got, size - got);
    if (part <= 0) return false;
    got += static_cast<std::size_t>(part);
  }
  return true;
}

[[noreturn]] void Child(Side& side, int reader, int start, int reports) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  side.Prepare(reader);
  char ready = 'r';
  Report report;
  if (!WriteAll(reports, &ready, 1) || ::read(start, &ready, 1) != 0) ::_exit(1);  // the start is the end of the file
  const double cpu = CpuSeconds();
  const double started = Now();
  report.result = side.Run(reader);
  report.ended = Now();
  report.result.seconds = report.ended - started;
  report.result.cpu_seconds = CpuSeconds() - cpu;
  ::_exit(WriteAll(reports, &report, sizeof report) ? 0 : 1);
}

}  // namespace

void* SharedPage() {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? nullptr : page;
}

void InChild(Bench& bench, const std::function<void()>& part) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench.ForgetFailures();
    part();
    std::fflush(nullptr);
    ::_exit(bench.Finish());
  }
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) < 0 || status != 0) bench.Fail("a part ended with status " + std::to_string(status));
}

RunResult RunReaders(int readers, Side& side) {
  int start[2];
  RunResult all;
  if (::pipe(start) != 0) return all;
  std::vector<pid_t> pids;
  std::vector<int> pipes;
  for (int reader = 0; reader < readers; ++reader) {
    int reports[2];
    if (::pipe(reports) != 0) break;
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(start[1]);
      Child(side, reader, start[0], reports[1]);
    }
    ::close(reports[1]);
    pids.push_back(pid);
    pipes.push_back(reports[0]);
  }
  ::close(start[0]);
  all.good = static_cast<int>(pids.size()) == readers;
  char ready = 0;
  for (const int fd : pipes) all.good &= ReadAll(fd, &ready, 1);
  const double started = Now();
  ::close(start[1]);
  for (const int fd : pipes) {
    Report report;
    if (!ReadAll(fd, &report, sizeof report)) {
      all.good = false;
    } else {
      all.seconds = std::max(all.seconds, report.ended - started);
      all.cpu_seconds += report.result.cpu_seconds;
      all.files += report.result.files;
      all.bytes += report.result.bytes;
      all.ram += report.result.ram;
      all.ssd += report.result.ssd;
      all.ssd_bytes += report.result.ssd_bytes;
      all.p50_ns = std::max(all.p50_ns, report.result.p50_ns);
      all.p99_ns = std::max(all.p99_ns, report.result.p99_ns);
      all.good &= report.result.errors == 0;
    }
    ::close(fd);
  }
  for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  return all;
}

}  // namespace bench
