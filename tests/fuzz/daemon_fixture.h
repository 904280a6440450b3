// A whole daemon in this process, without its main program: engine, sessions and control plane over a small tree of files in a temporary
// directory. One thread; the loop turns when told.
#pragma once

#include <sys/stat.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "policies/registry.h"
#include "tests/fuzz/fuzz_input.h"
#include "tierd/base/clock.h"
#include "tierd/engine/engine.h"
#include "tierd/server/control_api.h"
#include "tierd/server/session_hub.h"

namespace tierd::fuzz {

class FixedConfig final : public server::ConfigHost {
 public:
  std::string file() const override { return ""; }
  std::vector<Value> values() const override { return {{"ram.capacity", "auto", "default", true}}; }
  Result<Applied> Set(const std::string& key, const std::string&) override { return Status(Code::kNotFound, "no key " + key); }
  Result<Applied> Reload() override { return Status(Code::kInvalid, "nothing to reload"); }
  std::string runtime_directory() const override { return "/run"; }
  std::string metrics_address() const override { return ""; }
  std::string ssd_refused() const override { return ""; }
};

class InProcessDaemon {
 public:
  InProcessDaemon() {
    char name[] = "/tmp/tierd_fuzz_XXXXXX";
    FUZZ_CHECK(::mkdtemp(name) != nullptr);
    directory_ = name;
    std::filesystem::create_directories(data() + "/b");
    for (const char* file : {"/a", "/b/c", "/b/d"}) std::ofstream(data() + file) << std::string(3000, 'x');
    engine::EngineOptions options;
    engine::SourceOptions source;
    source.path = data();
    source.name = "data";
    source.engine = engine::EngineChoice::kThreads;
    options.sources.push_back(source);
    options.ram.capacity_bytes = 32 << 20;
    options.ram.segment_bytes = 16 << 20;
    options.ram.pages = engine::PagesChoice::k4KiB;
    engine_ = std::make_unique<engine::Engine>(loop_, clock_, policies_, options);
    hub_ = std::make_unique<server::SessionHub>(loop_, *engine_, clock_, server::SessionOptions{.socket_path = socket()});
    api_ = std::make_unique<server::ControlApi>(*engine_, *hub_, clock_, config_);
    engine_->on_turn = [this] { hub_->FlushReplies(); };
    engine_->on_timer = [this] { hub_->OnTimer(); };
    const Status started = engine_->Start(*hub_);
    if (!started.ok()) std::fprintf(stderr, "%s\n", started.ToString().c_str());
    FUZZ_CHECK(started.ok());
    FUZZ_CHECK(hub_->Listen().ok());
    Turn();
  }
  ~InProcessDaemon() {
    hub_->Close();
    engine_->Stop(2000);
    loop_.poll();
    api_.reset();
    hub_.reset();
    engine_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Turn() {
    for (int i = 0; i < 4; ++i) loop_.poll();
  }
  std::string data() const { return directory_ + "/data"; }
  std::string socket() const { return directory_ + "/sock"; }
  server::ControlApi& api() { return *api_; }
  server::SessionHub& hub() { return *hub_; }
  engine::Engine& engine() { return *engine_; }
  boost::asio::io_context& loop() { return loop_; }

 private:
  std::string directory_;
  SystemClock clock_;
  boost::asio::io_context loop_{1};
  policies::Registry policies_;
  FixedConfig config_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<server::SessionHub> hub_;
  std::unique_ptr<server::ControlApi> api_;
};

}  // namespace tierd::fuzz
