#include "tierd/server/control.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/bind_allocator.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
#include <optional>

namespace tierd::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using local = asio::local::stream_protocol;

namespace {
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
}  // namespace

// One connection: read a request, answer, again. Owns itself through the handlers that are pending.
class Control::Connection : public std::enable_shared_from_this<Control::Connection> {
 public:
  Connection(local::socket socket, ControlApi& api, std::shared_ptr<std::size_t> count, ControlApi::Caller caller, const Options& options)
      : stream_(std::move(socket)), api_(api), count_(std::move(count)), caller_(caller), options_(options) {
    ++*count_;
  }
  ~Connection() { --*count_; }

  void Read() {
    parser_.emplace();
    parser_->body_limit(kMaxBodyBytes);
    parser_->header_limit(kMaxHeaderBytes);
    stream_.expires_after(options_.request_timeout);
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, std::size_t) {
      if (!error) return self->Handle();
      if (error == http::error::body_limit) return self->Answer(ControlApi::Error(413, "too_large", "the body is over 1 MiB"), false);
      if (error == http::error::header_limit) return self->Answer(ControlApi::Error(413, "too_large", "the header is over 32 KiB"), false);
      const bool gone = error == http::error::end_of_stream || error == beast::error::timeout;
      if (!gone && error.category() == beast::error_code(http::error::bad_target).category())
        self->Answer(ControlApi::Error(400, "bad_request", "not an HTTP request: " + error.message()), false);
    });
  }

  void RefuseBusy() { Answer(ControlApi::Error(429, "busy", "too many control connections"), false); }

 private:
  void Handle() {
    const auto& request = parser_->get();
    const auto method = request.method_string();
    const auto target = request.target();
    api_.Handle({method.data(), method.size()}, {target.data(), target.size()}, request.body(), caller_,
                [self = shared_from_this(), keep_alive = request.keep_alive()](ControlApi::Response response) { self->Answer(std::move(response), keep_alive); });
  }

  void Answer(ControlApi::Response response, bool keep_alive) {
    response_ = http::response<http::string_body>();
    response_.result(response.status);
    response_.set(http::field::content_type, response.type);
    if (!response.allow.empty()) response_.set(http::field::allow, response.allow);
    response_.body() = std::move(response.body);
    response_.keep_alive(keep_alive);
    response_.prepare_payload();
    stream_.expires_after(options_.answer_timeout);
    http::async_write(stream_, response_, [self = shared_from_this(), keep_alive](beast::error_code error, std::size_t) {
      if (!error && keep_alive) return self->Read();
      beast::error_code ignored;
      self->stream_.socket().shutdown(local::socket::shutdown_send, ignored);
    });
  }

  beast::basic_stream<local> stream_;
  ControlApi& api_;
  std::shared_ptr<std::size_t> count_;
  const ControlApi::Caller caller_;
  const Options options_;
  beast::flat_buffer buffer_{kMaxBodyBytes + kMaxHeaderBytes};
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
};

Status Control::Listen(const std::string& path) {
  boost::system::error_code error;
  const local::endpoint endpoint(path);
  acceptor_ = std::make_unique<local::acceptor>(loop_);
  acceptor_->open(endpoint.protocol(), error);
  if (!error) acceptor_->bind(endpoint, error);
  if (error == asio::error::address_in_use) {
    local::socket probe(loop_);
    boost::system::error_code refused;
    probe.connect(endpoint, refused);
    if (!refused) return Status(Code::kBusy, "another tierd listens on " + path);
    ::unlink(path.c_str());
    error.clear();
    acceptor_->bind(endpoint, error);
  }
  if (!error) acceptor_->listen(64, error);
  if (!error) acceptor_->non_blocking(true, error);
  if (error) return Status(Code::kIo, "listen on " + path + ": " + error.message());
  ::chmod(path.c_str(), 0600);
  path_ = path;
  Accept();
  return Status::Ok();
}

void Control::Accept() {
  const auto on_client = [this](const boost::system::error_code& error) {
    if (error) return;  // closed
    bool accepted = false;
    (void)engine::Survives([&] { accepted = AcceptOne(); });
    if (accepted) Accept();
    else AcceptLater();
  };
  acceptor_->async_wait(local::acceptor::wait_read, asio::bind_allocator(accept_memory_.allocator(), on_client));
}

bool Control::AcceptOne() {
  local::socket socket(loop_);
  boost::system::error_code error;
  acceptor_->accept(socket, error);
  if (error) return error == asio::error::would_block || error == asio::error::connection_aborted || error == asio::error::interrupted;
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known = ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  if (!known || peer.uid != ::geteuid()) return true;
  const bool full = *connections_ >= options_.max_connections;
  auto connection = std::make_shared<Connection>(std::move(socket), api_, connections_, ControlApi::Caller{peer.pid}, options_);
  if (full) connection->RefuseBusy();
  else connection->Read();
  return true;
}

// Who asks stays in the backlog, and the loop does not spin on a listener that is always ready.
void Control::AcceptLater() {
  const auto on_time = [this](const boost::system::error_code& error) {
    if (!error) Accept();
  };
  const bool armed = engine::Survives([&] {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait(asio::bind_allocator(accept_memory_.allocator(), on_time));
  });
  if (!armed) Accept();
}

void Control::Close() {
  if (acceptor_ == nullptr) return;
  boost::system::error_code ignored;
  acceptor_->close(ignored);
  (void)engine::Survives([&] { pause_.cancel(); });
  ::unlink(path_.c_str());
}

}  // namespace tierd::server
