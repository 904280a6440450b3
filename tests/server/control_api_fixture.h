// The control plane's end points on a whole daemon in this process, without its socket.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/fuzz/daemon_fixture.h"

namespace tierd::server {

// Each precise look costs so much; all else stands still.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(std::int64_t step_ns) : step_ns_(step_ns) {}
  std::int64_t MonotonicNs() const override { return 1'000'000'000; }
  std::int64_t RealtimeNs() const override { return 1'700'000'000'000'000'000; }
  std::int64_t PreciseNs() const override { return now_ns_ += step_ns_; }

 private:
  const std::int64_t step_ns_;
  mutable std::int64_t now_ns_ = 1'000'000'000;
};

class ControlApiTest : public testing::Test {
 protected:
  explicit ControlApiTest(fuzz::SsdTier ssd = fuzz::SsdTier::kOff, io::EngineFaults* source_io = nullptr) : daemon(ssd, source_io) {}
  struct Said {
    unsigned status = 0;  // 0: not answered
    nlohmann::json body;
    std::string allow;
  };
  // Answered within the call, or after some turns of the loop.
  Said Ask(ControlApi& api, const std::string& method, const std::string& target, const std::string& body = "") {
    Said said;
    api.Handle(method, target, body, [&said](ControlApi::Response response) { said = {response.status, nlohmann::json::parse(response.body, nullptr, false), response.allow}; });
    for (int i = 0; i < 5000 && said.status == 0; ++i) Turn();
    return said;
  }
  Said Ask(const std::string& method, const std::string& target, const std::string& body = "") { return Ask(daemon.api(), method, target, body); }
  bool JobEnds(const Said& started) {
    if (started.status != 202) return false;
    for (int i = 0; i < 5000; ++i) {
      if (daemon.engine().jobs().Find(started.body["job"])->ended_ns != 0) return true;
      Turn();
    }
    return false;
  }
  void Turn() {
    daemon.loop().restart();
    daemon.loop().run_for(std::chrono::milliseconds(1));
  }
  engine::SourceUnit& unit() { return *daemon.engine().sources().front(); }
  // As if a walk had come by it.
  void Insert(const std::string& relative, std::uint64_t bytes = 100) {
    io::FileStat stat{};
    stat.mode = S_IFREG | 0644;
    stat.ino = ++inode;
    stat.size = bytes;
    stat.mtime_ns = stat.ctime_ns = 1'000'000'000;
    auto observed = engine::Fetcher::Observed::kLater;
    for (int i = 0; i < 5000 && observed == engine::Fetcher::Observed::kLater; ++i) {
      observed = daemon.engine().fetcher().Observe(unit(), relative, stat, 0);
      if (observed == engine::Fetcher::Observed::kLater) Turn();
    }
    EXPECT_EQ(observed, engine::Fetcher::Observed::kKnown);
  }
  void Remove(const std::string& relative) {
    engine::Catalogue& catalogue = daemon.engine().catalogue();
    daemon.engine().fetcher().Forget(unit(), catalogue.Find(catalogue.KeyOf(unit().wire_id, relative)));
  }
  std::string Placed(std::string text) const {
    for (std::size_t at = 0; (at = text.find('@', at)) != std::string::npos; at += daemon.data().size()) text.replace(at, 1, daemon.data());
    return text;
  }
  std::string Path(const std::string& relative) const { return daemon.data() + "/" + relative; }

  fuzz::InProcessDaemon daemon;
  std::uint64_t inode = 1'000'000;
};

}  // namespace tierd::server
