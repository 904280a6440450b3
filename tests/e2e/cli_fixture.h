// tierctl and the daemon that it asks, over a few small files.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/tierctl/run_tierctl.h"

namespace tierd::e2e {

class CliTest : public testing::Test {
 protected:
  std::string Path(int i) const { return source + "/dir" + std::to_string(i % 3) + "/f" + std::to_string(i); }
  static std::size_t SizeOf(int i) { return 2000 + static_cast<std::size_t>(i) * 331; }
  // Returns the sum of the sizes.
  std::uint64_t MakeFiles(int count) {
    std::uint64_t bytes = 0;
    for (int i = 0; i < count; ++i) {
      Write(Path(i), Content(std::to_string(i), SizeOf(i)));
      bytes += SizeOf(i);
    }
    return bytes;
  }
  DaemonProcess::Options Options() const {
    DaemonProcess::Options options;
    options.source = source;
    options.more = kTrustStamps;
    options.more.insert(options.more.end(), {"--set", "source.warm=off"});
    return options;
  }
  tierctl::Ran Ctl(const std::vector<std::string>& arguments, const std::string& input = "") const { return tierctl::RunTierctl(arguments, {"TIERD_SOCKET=" + daemon.socket()}, input); }
  nlohmann::json CtlJson(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    const tierctl::Ran ran = Ctl(arguments);
    return nlohmann::json::parse(ran.out, nullptr, false);
  }
  nlohmann::json Du(const std::string& path) const {
    const nlohmann::json document = CtlJson({"du", path});
    return document.is_object() && document["paths"].size() == 1 ? document["paths"][0] : nlohmann::json::object();
  }

  ScratchDir scratch;
  std::string source = scratch.path() + "/data";
  DaemonProcess daemon{scratch.path()};
};

}  // namespace tierd::e2e
