#include "tierd/server/metrics.h"

#include <pthread.h>

#include <prometheus/text_serializer.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tierd/engine/out_of_memory.h"
#include "tierd/server/control_json.h"
#include "tierd/server/http_door.h"
#include "tierd/server/metric_families.h"

namespace tierd::server {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

using Families = std::vector<prometheus::MetricFamily>;
constexpr auto kLoopAnswersIn = std::chrono::seconds(1);
// Any user may scrape, as fast as they like. A page is built four times a second at most; so many get it at
// once, and who comes after them waits for the next one: 64 answers a second cost no more.
constexpr auto kPageStays = std::chrono::milliseconds(250);
constexpr std::size_t kGivenAtOnce = 16;
constexpr HttpLimits kLimits{.max_connections = 16, .when_full = HttpLimits::WhenFull::kWait, .max_body_bytes = 0, .max_header_bytes = 8 * 1024, .whole_timeout = std::chrono::seconds(5)};

std::string TextOf(const Families& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace

// What is served. After Detach it is empty.
class Metrics::Page : public std::enable_shared_from_this<Page> {
 public:
  Page(asio::io_context& loop, engine::Engine& engine, SessionHub& sessions, double started_s)
      : loop_(loop), engine_(engine), sessions_(sessions), started_s_(started_s) {}

  // Loop thread.
  Families Now() const {
    if (detached_.load()) return {};
    const auto handler = engine_.CountHandler("metrics");
    return CollectFamilies(engine_, sessions_, started_s_);
  }
  // Any other thread.
  Families Ask() const {
    if (detached_.load()) return {};
    const auto promise = std::make_shared<std::promise<Families>>();  // shared with the loop: we may give up waiting
    auto future = promise->get_future();
    asio::post(loop_, [self = shared_from_this(), promise] { promise->set_value(self->Now()); });
    return future.wait_for(kLoopAnswersIn) == std::future_status::ready ? future.get() : Families();
  }
  void Detach() { detached_.store(true); }

 private:
  asio::io_context& loop_;
  engine::Engine& engine_;
  SessionHub& sessions_;
  const double started_s_;
  std::atomic<bool> detached_{false};
};

class Metrics::Server {
 public:
  explicit Server(std::shared_ptr<Page> page)
      : page_(std::move(page)), door_(loop_, kLimits, [this](int) -> Door::Handler {
          return [this](const HttpRequest& request, const Door::Reply& reply) { Answer(request, reply); };
        }),
        next_page_(loop_) {}
  ~Server() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // The port it got.
  Result<int> Start(const std::string& host, const std::string& port) {
    boost::system::error_code error;
    const std::string number = host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
    const tcp::endpoint endpoint(asio::ip::make_address(number, error), static_cast<std::uint16_t>(std::stoi(port)));
    tcp::acceptor acceptor(loop_);
    if (!error) acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    const tcp::endpoint bound = error ? tcp::endpoint() : acceptor.local_endpoint(error);
    if (!error) error = door_.Open(std::move(acceptor));
    if (error) return Status(Code::kBusy, error.message());
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "tierd-metrics");
      // A scrape that memory ran out for is hung up on; others are served (F16).
      while (!engine::Survives([this] { loop_.run(); })) {
      }
    });
    return bound.port();
  }

 private:
  using Door = HttpDoor<tcp>;
  void Answer(const HttpRequest& request, const Door::Reply& reply) {
    if (request.target.substr(0, request.target.find('?')) != "/metrics") return reply(JsonError(404, "not_found", "there is /metrics and nothing else"));
    if (request.method != "GET") {
      HttpResponse refused = JsonError(405, "method", "/metrics takes GET");
      refused.allow = "GET";
      return reply(std::move(refused));
    }
    BuildIfOld();
    if (given_ < kGivenAtOnce) return Give(reply);
    waiting_.push_back(reply);
    if (is_timed_) return;
    next_page_.expires_at(built_ + kPageStays);
    next_page_.async_wait([this](const boost::system::error_code&) { GiveToAll(); });
    is_timed_ = true;  // not if memory ran out: then the next one tries again
  }

  void BuildIfOld() {
    if (std::chrono::steady_clock::now() - built_ < kPageStays) return;
    text_ = TextOf(page_->Ask());
    built_ = std::chrono::steady_clock::now();  // a loop that hangs has taken its second by then
    given_ = 0;
  }
  void Give(const Door::Reply& reply) {
    ++given_;
    reply({200, text_, "", "text/plain; version=0.0.4; charset=utf-8"});
  }
  void GiveToAll() {
    is_timed_ = false;
    const std::vector<Door::Reply> waiting = std::exchange(waiting_, {});
    BuildIfOld();
    for (const Door::Reply& reply : waiting) Give(reply);
  }

  const std::shared_ptr<Page> page_;
  asio::io_context loop_{1};
  Door door_;
  asio::steady_timer next_page_;
  // The page that was built last: when, and how many have it.
  std::string text_;
  std::chrono::steady_clock::time_point built_;
  std::size_t given_ = 0;
  std::vector<Door::Reply> waiting_;  // for the next one
  bool is_timed_ = false;             // it will be built for them
  std::thread thread_;
};

Metrics::Metrics(asio::io_context& loop, engine::Engine& engine, SessionHub& sessions, double started_s)
    : page_(std::make_shared<Page>(loop, engine, sessions, started_s)) {}

Metrics::~Metrics() { Stop(); }

Status Metrics::Start(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::unique_ptr<Server> server;
  Result<int> port = Status(Code::kBusy, "no thread, descriptor or memory for it");
  (void)engine::Survives([&] {
    server = std::make_unique<Server>(page_);
    port = server->Start(address.substr(0, colon), address.substr(colon + 1));
  });
  if (!port.ok())
    return Status(Code::kBusy, "cannot serve metrics on " + address + " (" + port.status().message() + "); set daemon.metrics_address to another port or \"off\"");
  server_ = std::move(server);
  address_ = address.substr(0, colon) + ":" + std::to_string(*port);
  return Status::Ok();
}

void Metrics::Stop() {
  page_->Detach();
  server_.reset();
}

std::string Metrics::Text() { return TextOf(page_->Now()); }

}  // namespace tierd::server
