// A source with a few files, a daemon that has them in RAM, and jobs that run on them bare or under the preload library.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/preload/preloaded_job.h"

namespace tierd::e2e {

class PreloadTest : public testing::Test {
 protected:
  void SetUp() override {
    source_ = scratch_.path() + "/source";
    plain_ = scratch_.path() + "/plain";
    std::filesystem::create_directories(plain_);
    job_.work = scratch_.path();
    job_.socket = daemon_.socket();
    job_.source = source_;
    bare_.work = scratch_.path();
  }
  // With what lies below the source by then, all of it in RAM.
  void StartDaemon(const std::string& ram = "128 MiB") {
    DaemonProcess::Options options;
    options.source = source_;
    options.ssd = "off";
    options.ram = ram;
    options.more = kTrustStamps;
    ASSERT_TRUE(daemon_.Start(options)) << daemon_.output();
    daemon_.Prefetch(source_);
  }

  // Below the source, and its twin outside.
  void Both(const std::string& name, const std::string& bytes) {
    Write(source_ + "/" + name, bytes);
    Write(plain_ + "/" + name, bytes);
  }
  std::string Of(const std::string& name) const { return source_ + "/" + name; }
  std::string Twin(const std::string& name) const { return plain_ + "/" + name; }

  // The same must come out bare; then under the library. The second's result.
  JobResult BareThenServed(const std::vector<std::string>& arguments) {
    const JobResult bare = RunJob(arguments, bare_);
    EXPECT_EQ(bare.code, 0) << "bare: " << bare.output;
    const JobResult served = RunJob(arguments, job_);
    EXPECT_EQ(served.code, 0) << served.output << served.report.dump();
    return served;
  }

  ScratchDir scratch_;
  std::string source_;
  std::string plain_;
  DaemonProcess daemon_{scratch_.path()};
  JobOptions job_;
  JobOptions bare_;
};

// 32-bit words: the file's number in bits 24-31, the word's place in the others.
inline std::string Words(std::uint32_t number, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t at = 0; at + 4 <= bytes; at += 4) {
    const std::uint32_t word = number << 24 | static_cast<std::uint32_t>(at / 4);
    std::memcpy(text.data() + at, &word, 4);
  }
  return text;
}

}  // namespace tierd::e2e
