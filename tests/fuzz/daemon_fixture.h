// A whole daemon in this process, without its main program: engine, sessions and control plane over a small tree of files in a temporary
// directory. One thread; the loop turns when told.
#pragma once

#include <sys/stat.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "policies/registry.h"
#include "tests/fuzz/fuzz_input.h"
#include "tierd/base/clock.h"
#include "tierd/engine/engine.h"
#include "tierd/io/engine_faults.h"
#include "tierd/server/control_api.h"
#include "tierd/server/metrics.h"
#include "tierd/server/session_hub.h"

namespace tierd::fuzz {

class FixedConfig final : public server::ConfigHost {
 public:
  explicit FixedConfig(std::string runtime) : runtime_(std::move(runtime)) {}
  std::string file() const override { return ""; }
  std::vector<Value> values() const override { return {{"ram.capacity", "auto", "default", true}}; }
  Result<Applied> Set(const std::string& key, const std::string&) override { return Status(Code::kNotFound, "no key " + key); }
  void Reload(Reloaded done) override { done(Status(Code::kInvalid, "nothing to reload")); }
  std::string runtime_directory() const override { return runtime_; }
  std::string metrics_address() const override { return ""; }
  std::string ssd_refused() const override { return ""; }

 private:
  const std::string runtime_;
};

enum class SsdTier : std::uint8_t {
  kOff,
  kOn,
  kRecovering,  // until the loop turns
};

class InProcessDaemon {
 public:
  // `source_io`, if any, hears of each step of reading the source, and outlives the daemon.
  explicit InProcessDaemon(SsdTier ssd = SsdTier::kOff, io::EngineFaults* source_io = nullptr,
                           server::SessionOptions sessions = {}) {
    std::filesystem::create_directories(data() + "/b");
    for (const char* file : {"/a", "/b/c", "/b/d"}) std::ofstream(data() + file) << std::string(3000, 'x');
    engine::EngineOptions options;
    engine::SourceOptions source;
    source.path = data();
    source.name = "data";
    source.engine = engine::EngineChoice::kThreads;
    options.sources.push_back(source);
    options.source_faults = source_io;
    options.ram.capacity_bytes = 32 << 20;
    options.ram.segment_bytes = 16 << 20;
    options.ram.pages = engine::PagesChoice::k4KiB;
    if (ssd != SsdTier::kOff) {
      options.ssd.directory = directory() + "/ssd";
      options.ssd.capacity_bytes = 64 << 20;
      options.ssd.region_bytes = 4 << 20;
      options.ssd.min_free_bytes = 0;
      options.ssd.min_free_inodes = 0;
      options.ssd.engine = engine::EngineChoice::kThreads;
    }
    engine_ = std::make_unique<engine::Engine>(loop_, clock_, policies_, options);
    sessions.socket_path = socket();
    hub_ = std::make_unique<server::SessionHub>(loop_, *engine_, clock_, std::move(sessions));
    api_ = std::make_unique<server::ControlApi>(loop_, *engine_, *hub_, clock_, config_);
    metrics_ = std::make_unique<server::Metrics>(loop_, *engine_, *hub_, 0);
    api_->policies = &policies_;
    api_->metrics_text = [this] { return metrics_->Text(); };
    engine_->on_turn = [this] { hub_->FlushReplies(); };
    engine_->on_timer = [this] { hub_->OnTimer(); };
    const Status started = engine_->Start(*hub_);
    if (!started.ok()) std::fprintf(stderr, "%s\n", started.ToString().c_str());
    FUZZ_CHECK(started.ok());
    FUZZ_CHECK(hub_->Listen().ok());
    FUZZ_CHECK(ssd == SsdTier::kRecovering || Await([this] { return !engine_->recovering(); }));
  }
  ~InProcessDaemon() {
    hub_->Close();
    engine_->Stop(2000);
    loop_.poll();
    api_.reset();
    metrics_.reset();
    hub_.reset();
    engine_.reset();
    std::filesystem::remove_all(directory());
  }

  void Turn() {
    for (int i = 0; i < 4; ++i) loop_.poll();
  }
  // Turns until it holds; false after 20 s, for what a worker does on a busy machine.
  template <typename Condition>
  bool Await(Condition holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (Turn(); !holds(); loop_.run_one_for(std::chrono::milliseconds(20)))
      if (std::chrono::steady_clock::now() > end) return false;
    return true;
  }
  // Of its own: the source, the socket, the SSD tier, and what clients leave for it.
  const std::string& directory() const { return directory_; }
  std::string data() const { return directory() + "/data"; }
  std::string socket() const { return directory() + "/sock"; }
  server::ControlApi& api() { return *api_; }
  server::SessionHub& hub() { return *hub_; }
  engine::Engine& engine() { return *engine_; }
  boost::asio::io_context& loop() { return loop_; }

 private:
  static std::string NewDirectory() {
    char name[] = "/tmp/tierd_fuzz_XXXXXX";
    FUZZ_CHECK(::mkdtemp(name) != nullptr);
    return name;
  }

  const std::string directory_ = NewDirectory();
  SystemClock clock_;
  boost::asio::io_context loop_{1};
  policies::Registry policies_;
  FixedConfig config_{directory_};
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<server::SessionHub> hub_;
  std::unique_ptr<server::Metrics> metrics_;
  std::unique_ptr<server::ControlApi> api_;
};

}  // namespace tierd::fuzz
