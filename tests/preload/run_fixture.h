// A source, a directory for runs, and `tierctl run` over them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/preload/preloaded_job.h"

namespace tierd::e2e {

class RunTest : public testing::Test {
 protected:
  void SetUp() override {
    source_ = scratch_.path() + "/source";
    base_ = scratch_.path() + "/tmp";
    std::filesystem::create_directories(base_);
    Write(source_ + "/file", Content("file", 100'000));
    job_.work = scratch_.path();
    job_.environment = {{"TMPDIR", base_}, {"XDG_CONFIG_HOME", scratch_.path() + "/config"}, {"XDG_RUNTIME_DIR", base_ + "/none"}, {"TIERD_LEDGER", base_}};
  }

  std::vector<std::string> Run(std::vector<std::string> options, std::vector<std::string> command) const {
    std::vector<std::string> arguments{TIERCTL_BINARY, "run", "--source", source_, "--ram", "64 MiB"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back("--");
    arguments.insert(arguments.end(), command.begin(), command.end());
    return arguments;
  }
  JobResult RunIt(std::vector<std::string> options, std::vector<std::string> command) const { return RunJob(Run(std::move(options), std::move(command)), job_); }

  // Private directories of runs that are still there.
  std::vector<std::string> LeftOver() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(base_)) {
      if (entry.path().filename().string().starts_with("tierd-run-")) names.push_back(entry.path().string());
    }
    return names;
  }
  // Of a run's private directory; 0: none answers.
  pid_t DaemonOf(const std::string& directory) const {
    const JobResult status = RunJob({TIERCTL_BINARY, "--socket", directory + "/run/tierd.sock", "status", "--json"}, job_);
    const auto document = nlohmann::json::parse(status.output, nullptr, false);
    return document.is_object() ? document.value("pid", 0) : 0;
  }
  // Not so one that has ended and that nobody has waited for.
  static bool IsThere(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(in, text);
    const std::size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text.substr(name_end, 3) != ") Z";
  }
  nlohmann::json ReadJson(const std::string& path) const {
    std::ifstream in(path);
    return nlohmann::json::parse(in, nullptr, false);
  }

  static bool IsAsTheSchemaSays(const std::string& report) {
    return std::system(("/usr/bin/python3 " TIERCTL_VALIDATE " " TIERCTL_SCHEMAS "/run.json " + report).c_str()) == 0;
  }

  ScratchDir scratch_;
  std::string source_;
  std::string base_;
  JobOptions job_;
};

}  // namespace tierd::e2e
