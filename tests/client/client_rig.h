// A source directory, a fake daemon over it, and a client of its own: what most tests of the library begin with.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/support/fake_daemon.h"
#include "tier/tier.h"

namespace tierd::testing {

// Content that says where it belongs: any byte in a wrong place is seen.
inline std::string ContentOf(const std::string& name, std::size_t bytes, unsigned version = 1) {
  std::string out(bytes, '\0');
  std::uint64_t x = std::hash<std::string>{}(name) + version * 0x9e3779b97f4a7c15ull;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) x = abi::Mix64(x + i);
    out[i] = static_cast<char>(x >> (i % 8 * 8));
  }
  return out;
}

class ClientRig : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tier_client_XXXXXX").string();
    base_ = std::filesystem::canonical(::mkdtemp(pattern.data())).string();
    root_ = base_ + "/source";
    std::filesystem::create_directory(root_);
    options_.root = root_;
    options_.socket = base_ + "/run/tierd.sock";
    std::filesystem::create_directory(base_ + "/run");
    ::chmod((base_ + "/run").c_str(), 0700);
  }
  void TearDown() override {
    if (client_ != nullptr) tier_disconnect(client_);
    daemon_.reset();
    process_.reset();
    std::filesystem::remove_all(base_);
  }

  void Write(const std::string& relative, const std::string& content) {
    const std::filesystem::path path = root_ + "/" + relative;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  std::string Path(const std::string& relative) const { return root_ + "/" + relative; }
  void StartDaemon() {
    daemon_ = std::make_unique<FakeDaemon>(options_);
    daemon_->Start();
  }
  // A client that finds the daemon at once.
  tier_client* Client(std::uint32_t flags = 0, std::uint32_t timeout_ms = 0) {
    tier_options options{};
    options.size = sizeof options;
    options.socket = options_.socket.c_str();
    options.timeout_ms = timeout_ms;
    options.flags = flags;
    EXPECT_EQ(0, tier_connect(&options, &client_));
    return client_;
  }
  tier_statistics Stats() const {
    tier_statistics s{};
    s.size = sizeof s;
    EXPECT_EQ(0, tier_stats(client_, &s));
    return s;
  }
  std::uint64_t Fallbacks(abi::Fallback reason) const { return Stats().fallback[static_cast<std::size_t>(reason)]; }
  // The machine was so busy that the daemon did not answer in time: where bytes came from then proves nothing (that they are right does).
  bool Disturbed() const { return Fallbacks(abi::Fallback::kTimeout) + Fallbacks(abi::Fallback::kHung) != 0; }
  // Bytes of a path through tier_get; the origin is checked when given.
  std::string Get(const std::string& path, int origin = -1, unsigned flags = 0) {
    tier_view view;
    const int error = tier_get(client_, path.c_str(), &view, flags);
    EXPECT_EQ(0, error) << path;
    if (error != 0) return "";
    if (origin >= 0 && !(view.origin == TIER_FROM_BYPASS && Disturbed())) {
      EXPECT_EQ(static_cast<std::uint32_t>(origin), view.origin) << path;
    }
    std::string out(static_cast<const char*>(view.data), view.size);
    tier_release(&view);
    return out;
  }

  FakeDaemonOptions options_;
  std::string base_;
  std::string root_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<FakeDaemonProcess> process_;
  tier_client* client_ = nullptr;
};

}  // namespace tierd::testing
