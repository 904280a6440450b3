// HTTP/1.1 at a listening socket: who may come in and how many at a time, how long requests may be, how long they and their answers may take. What is
// answered is the handler's. For the control plane's Unix socket (control.cc) and for /metrics (metrics.cc).
//
// Everything runs on the one thread that runs `loop`. While nobody is connected nothing is pending but the wait for who comes: an idle door wakes nobody.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "tierd/engine/out_of_memory.h"
#include "tierd/server/http.h"

namespace tierd::server {

struct HttpLimits {
  // One more takes the place of one that is not being answered: of the one that has been idle longest,
  // else of the one whose request has been incomplete longest. Are all being answered, `when_full` holds.
  std::size_t max_connections = 16;
  enum class WhenFull { kRefuse, kWait } when_full = WhenFull::kRefuse;  // 429, or left in the backlog
  std::size_t max_body_bytes = 1 << 20;              // more: 413
  std::size_t max_header_bytes = 32 * 1024;          // more: 413
  std::chrono::milliseconds idle_timeout{60'000};    // until a request begins; then the connection is closed
  std::chrono::milliseconds request_timeout{5'000};  // from its first byte until all of it has come; likewise
  std::chrono::milliseconds answer_timeout{5'000};   // until the whole answer has been taken; likewise
  std::chrono::milliseconds whole_timeout{0};        // from the first byte until the whole answer has been taken; 0: no limit
};

template <typename Protocol>  // boost::asio::local::stream_protocol or boost::asio::ip::tcp
class HttpDoor {
 public:
  using Reply = std::function<void(HttpResponse)>;
  // `reply` runs once, inside the call or later. What the request refers to lives as long as the call.
  using Handler = std::function<void(const HttpRequest& request, Reply reply)>;
  // What answers the client at `descriptor`; an empty one hangs up on it.
  using Admit = std::function<Handler(int descriptor)>;

  HttpDoor(boost::asio::io_context& loop, const HttpLimits& limits, Admit admit) : loop_(loop), limits_(limits), admit_(std::move(admit)), pause_(loop) {}
  ~HttpDoor() { Close(); }

  // `acceptor`: bound, of this loop.
  boost::system::error_code Open(typename Protocol::acceptor acceptor);
  // Nobody comes in any more; who is in is served to the end. True when the door was open.
  bool Close();

 private:
  class Connection;
  // Which connection gives its place to a new one; nullptr: all are being answered.
  Connection* FirstToGo() const;
  void Accept();
  // False: not now (no descriptors, no memory).
  bool AcceptOne();
  void AcceptLater();

  boost::asio::io_context& loop_;
  const HttpLimits limits_;
  const Admit admit_;
  std::optional<typename Protocol::acceptor> acceptor_;
  boost::asio::steady_timer pause_;
  engine::HandlerMemory accept_memory_;
  // Those that are there, by age. Shared with connections, which outlive Close by a turn.
  using Connections = std::list<Connection*>;
  std::shared_ptr<Connections> connections_ = std::make_shared<Connections>();
};

extern template class HttpDoor<boost::asio::local::stream_protocol>;
extern template class HttpDoor<boost::asio::ip::tcp>;

}  // namespace tierd::server
