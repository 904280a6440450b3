#include "tierd/server/http_door.h"

#include <boost/asio/bind_allocator.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include "tierd/server/control_json.h"

namespace tierd::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

namespace {
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
}  // namespace

// One connection: read a request, answer, again. Owns itself through the handlers that are pending.
template <typename Protocol>
class HttpDoor<Protocol>::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(typename Protocol::socket socket, Handler handler, std::shared_ptr<Connections> all, const HttpLimits& limits)
      : stream_(std::move(socket)), handler_(std::move(handler)), all_(std::move(all)), limits_(limits), buffer_(limits.max_body_bytes + limits.max_header_bytes) {
    place_ = all_->insert(all_->end(), this);
  }
  ~Connection() { Leave(); }

  enum class State { kIdle, kAsking, kAnswered };
  State state() const { return state_; }
  std::chrono::steady_clock::time_point since() const { return since_; }
  // Another one has its place from now on.
  void GiveWay() {
    Leave();
    beast::error_code ignored;
    stream_.socket().shutdown(asio::socket_base::shutdown_both, ignored);
    stream_.close();
  }

  // Waits for a request; its time begins with its first byte.
  void Read() {
    if (buffer_.size() > 0) return ReadRequest();
    Enter(State::kIdle);
    stream_.expires_after(limits_.idle_timeout);
    stream_.async_read_some(buffer_.prepare(kFirstRead), [self = this->shared_from_this()](beast::error_code error, std::size_t bytes) {
      if (error) return;
      self->buffer_.commit(bytes);
      self->ReadRequest();
    });
  }

  void RefuseBusy() { Answer(JsonError(429, "busy", "too many connections"), false); }

 private:
  static constexpr std::size_t kFirstRead = 4096;

  void Enter(State state) {
    state_ = state;
    since_ = std::chrono::steady_clock::now();
  }
  void Leave() {
    if (place_ != all_->end()) all_->erase(std::exchange(place_, all_->end()));
  }

  void ReadRequest() {
    Enter(State::kAsking);
    began_ = since_;
    parser_.emplace();
    parser_->body_limit(limits_.max_body_bytes);
    parser_->header_limit(static_cast<std::uint32_t>(limits_.max_header_bytes));
    stream_.expires_at(began_ + limits_.request_timeout);
    http::async_read(stream_, buffer_, *parser_, [self = this->shared_from_this()](beast::error_code error, std::size_t) {
      if (!error) return self->Handle();
      if (error == http::error::body_limit) return self->TooLarge("body", self->limits_.max_body_bytes);
      if (error == http::error::header_limit) return self->TooLarge("header", self->limits_.max_header_bytes);
      const bool gone = error == http::error::end_of_stream || error == beast::error::timeout;
      if (!gone && error.category() == beast::error_code(http::error::bad_target).category())
        self->Answer(JsonError(400, "bad_request", "not an HTTP request: " + error.message()), false);
    });
  }

  void Handle() {
    Enter(State::kAnswered);
    const auto& request = parser_->get();
    const auto method = request.method_string();
    const auto target = request.target();
    handler_({{method.data(), method.size()}, {target.data(), target.size()}, request.body()},
             [self = this->shared_from_this(), keep_alive = request.keep_alive()](HttpResponse response) { self->Answer(std::move(response), keep_alive); });
  }

  void TooLarge(const char* part, std::size_t limit) {
    Answer(JsonError(413, "too_large", std::string("the ") + part + " is over " + std::to_string(limit >> 10) + " KiB"), false);
  }

  void Answer(HttpResponse response, bool keep_alive) {
    response_ = http::response<http::string_body>();
    response_.result(response.status);
    response_.set(http::field::content_type, response.type);
    if (!response.allow.empty()) response_.set(http::field::allow, response.allow);
    response_.body() = std::move(response.body);
    response_.keep_alive(keep_alive);
    response_.prepare_payload();
    auto expires = std::chrono::steady_clock::now() + limits_.answer_timeout;
    if (limits_.whole_timeout.count() != 0) expires = std::min(expires, began_ + limits_.whole_timeout);
    stream_.expires_at(expires);
    http::async_write(stream_, response_, [self = this->shared_from_this(), keep_alive](beast::error_code error, std::size_t) {
      if (!error && keep_alive) return self->Read();
      beast::error_code ignored;
      self->stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
    });
  }

  beast::basic_stream<Protocol> stream_;
  const Handler handler_;
  std::shared_ptr<Connections> all_;
  typename Connections::iterator place_;  // end: not among them any more
  const HttpLimits limits_;
  State state_ = State::kAnswered;
  std::chrono::steady_clock::time_point since_;  // it is in this state
  std::chrono::steady_clock::time_point began_;  // the first byte of the request

  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
};

template <typename Protocol>
boost::system::error_code HttpDoor<Protocol>::Open(typename Protocol::acceptor acceptor) {
  boost::system::error_code error;
  acceptor.listen(64, error);
  if (!error) acceptor.non_blocking(true, error);
  if (error) return error;
  acceptor_ = std::move(acceptor);
  Accept();
  return {};
}

template <typename Protocol>
void HttpDoor<Protocol>::Accept() {
  const auto on_client = [this](const boost::system::error_code& error) {
    if (error) return;  // closed
    bool accepted = false;
    (void)engine::Survives([&] { accepted = AcceptOne(); });
    if (accepted) Accept();
    else AcceptLater();
  };
  acceptor_->async_wait(asio::socket_base::wait_read, asio::bind_allocator(accept_memory_.allocator(), on_client));
}

template <typename Protocol>
typename HttpDoor<Protocol>::Connection* HttpDoor<Protocol>::FirstToGo() const {
  using State = typename Connection::State;
  Connection* first = nullptr;
  for (Connection* const one : *connections_) {
    if (one->state() == State::kAnswered) continue;
    const bool before = first == nullptr || (one->state() == first->state() ? one->since() < first->since() : one->state() == State::kIdle);
    if (before) first = one;
  }
  return first;
}

template <typename Protocol>
bool HttpDoor<Protocol>::AcceptOne() {
  const bool full = connections_->size() >= limits_.max_connections;
  if (full && limits_.when_full == HttpLimits::WhenFull::kWait && FirstToGo() == nullptr) return false;
  typename Protocol::socket socket(loop_);
  boost::system::error_code error;
  acceptor_->accept(socket, error);
  if (error) return error == asio::error::would_block || error == asio::error::connection_aborted || error == asio::error::interrupted;
  Handler handler = admit_(socket.native_handle());
  if (!handler) return true;
  Connection* const gone = full ? FirstToGo() : nullptr;
  if (gone != nullptr) gone->GiveWay();
  auto connection = std::make_shared<Connection>(std::move(socket), std::move(handler), connections_, limits_);
  if (full && gone == nullptr) connection->RefuseBusy();
  else connection->Read();
  return true;
}

// Who asks stays in the backlog, and the loop does not spin on a listener that is always ready.
template <typename Protocol>
void HttpDoor<Protocol>::AcceptLater() {
  const auto on_time = [this](const boost::system::error_code& error) {
    if (!error) Accept();
  };
  const bool armed = engine::Survives([&] {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait(asio::bind_allocator(accept_memory_.allocator(), on_time));
  });
  if (!armed) Accept();
}

template <typename Protocol>
bool HttpDoor<Protocol>::Close() {
  if (!acceptor_) return false;
  boost::system::error_code ignored;
  acceptor_->close(ignored);
  (void)engine::Survives([&] { pause_.cancel(); });
  return true;
}

template class HttpDoor<asio::local::stream_protocol>;
template class HttpDoor<asio::ip::tcp>;

}  // namespace tierd::server
