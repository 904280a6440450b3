#include "tierd/server/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/text_serializer.h>

#include <boost/asio/post.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <sstream>

#include "tierd/engine/out_of_memory.h"
#include "tierd/server/metric_families.h"

namespace tierd::server {

// Lives as long as the exposer may call it; after Detach it answers with nothing.
class Metrics::Collector final : public prometheus::Collectable {
 public:
  Collector(boost::asio::io_context& loop, engine::Engine& engine, SessionHub& sessions, double started_s)
      : loop_(loop), engine_(engine), sessions_(sessions), started_s_(started_s) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    (void)engine::Survives([&] { families = Ask(); });  // a thread of the exposer's, where a throw would end the process (F16)
    return families;
  }
  std::vector<prometheus::MetricFamily> Now() const { return CollectFamilies(engine_, sessions_, started_s_); }
  void Detach() { detached_.store(true); }

 private:
  std::vector<prometheus::MetricFamily> Ask() const {
    if (detached_.load()) return {};
    auto promise = std::make_shared<std::promise<std::vector<prometheus::MetricFamily>>>();  // shared with the loop: we may give up waiting
    auto future = promise->get_future();
    boost::asio::post(loop_, [this, promise] {
      promise->set_value(detached_.load() ? std::vector<prometheus::MetricFamily>() : Now());
    });
    if (future.wait_for(std::chrono::seconds(1)) != std::future_status::ready) return {};
    return future.get();
  }

  boost::asio::io_context& loop_;
  engine::Engine& engine_;
  SessionHub& sessions_;
  const double started_s_;
  std::atomic<bool> detached_{false};
};

struct Metrics::Server {
  explicit Server(const std::string& address) : exposer(address, 1) {}
  prometheus::Exposer exposer;
};

Metrics::Metrics(boost::asio::io_context& loop, engine::Engine& engine, SessionHub& sessions, double started_s)
    : collector_(std::make_shared<Collector>(loop, engine, sessions, started_s)) {}

Metrics::~Metrics() { Stop(); }

Status Metrics::Start(const std::string& address) {
  try {
    server_ = std::make_unique<Server>(address);
    server_->exposer.RegisterCollectable(collector_, "/metrics");
    const std::vector<int> ports = server_->exposer.GetListeningPorts();
    const std::size_t colon = address.rfind(':');
    address_ = address.substr(0, colon) + ":" + std::to_string(ports.empty() ? 0 : ports.front());
  } catch (const std::exception& error) {
    server_.reset();
    return Status(Code::kBusy, "cannot serve metrics on " + address + " (" + error.what() + "); set daemon.metrics_address to another port or \"off\"");
  }
  return Status::Ok();
}

void Metrics::Stop() {
  collector_->Detach();
  server_.reset();
}

std::string Metrics::Text() {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, collector_->Now());
  return out.str();
}

}  // namespace tierd::server
