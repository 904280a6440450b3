// What the tests through a mount share: a rig per test, small file helpers, a stopwatch.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tests/pfs_sim/content.h"
#include "tests/pfs_sim/rig.h"
#include "tests/pfs_sim/tree.h"

namespace pfs_sim {

class RigTest : public testing::Test {
 protected:
  // Skips the test where FUSE is not available.
  void SetUp() override {
    static const std::string unavailable = WhyUnavailable();
    if (!unavailable.empty()) GTEST_SKIP() << unavailable;
  }

  void TearDown() override {
    const bool orderly = rig_ == nullptr || rig_->Stop(SIGTERM);
    EXPECT_TRUE(orderly);
  }

  void StartRig(const RigOptions& options) {
    std::string why;
    rig_ = Rig::Start(options, &why);
    if (rig_ == nullptr) FAIL() << why;
  }

  std::string Mounted(const std::string& path) const { return rig_->mount() + "/" + path; }
  std::string Backing(const std::string& path) const { return rig_->backing() + "/" + path; }

  void WriteBacking(const std::string& path, const std::string& text) const {
    std::ofstream(Backing(path), std::ios::binary) << text;
  }

  // The kernel sends release after close has returned, and the rig counts a request as ended after its reply.
  bool WaitForIdle() const {
    for (int i = 0; i < 500; ++i) {
      const RigCounters counters = rig_->Counters();
      if (counters.open_handles == 0 && counters.in_flight == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // `size` bytes of the content of (seed 0, path, version).
  static std::string Sample(const std::string& path, size_t size, uint64_t version = 1) {
    std::string out(size, '\0');
    FillContent({0, path, version}, 0, out.data(), size);
    return out;
  }

  // All that one read(2) of `size` bytes at `offset` gives, or "errno N".
  static std::string ReadAt(int fd, size_t size, off_t offset) {
    std::string out(size, '\0');
    const ssize_t got = pread(fd, out.data(), size, offset);
    if (got < 0) return "errno " + std::to_string(errno);
    out.resize(static_cast<size_t>(got));
    return out;
  }

  // open, read to the end, close; or "errno N".
  static std::string ReadFile(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return "errno " + std::to_string(errno);
    std::string out;
    std::string part;
    do {
      part = ReadAt(fd, 1 << 20, static_cast<off_t>(out.size()));
      out = part.starts_with("errno ") ? part : out + part;
    } while (!part.empty() && !part.starts_with("errno "));
    close(fd);
    return out;
  }

  static struct stat StatOf(const std::string& path) {
    struct stat st {};
    EXPECT_EQ(lstat(path.c_str(), &st), 0) << path << ": " << strerror(errno);
    return st;
  }

  static int StatErrno(const std::string& path) {
    struct stat st {};
    return lstat(path.c_str(), &st) == 0 ? 0 : errno;
  }

  static std::chrono::milliseconds Time(const std::function<void()>& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  }

  // Waits until the rig holds `count` hung requests; false after 10 s.
  bool WaitForHung(uint64_t count) const {
    for (int i = 0; i < 10000; ++i) {
      if (rig_->Counters().hung == count) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  // Runs one control command that must succeed; returns its body.
  std::string Control(const std::string& command) const {
    const std::string answer = rig_->Control(command);
    EXPECT_FALSE(answer.starts_with("error:")) << command << ": " << answer;
    return answer;
  }

  std::unique_ptr<Rig> rig_;

 private:
  static std::string WhyUnavailable() {
    std::string why;
    const auto probe = Rig::Start({}, &why);
    return probe == nullptr && why.starts_with("unavailable") ? why : "";
  }
};

}  // namespace pfs_sim
