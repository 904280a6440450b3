#include "tierctl/client/http_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <chrono>
#include <cstring>

namespace tierctl {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tierd::Code;
using tierd::Status;

constexpr std::size_t kMaxReplyBytes = std::size_t{256} << 20;

// The steps of one exchange; each is started, then the loop runs until it is over or the time is up.
class Session {
 public:
  explicit Session(int timeout_ms) : end_(std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms)) {}

  Status Connect(const std::string& path) {
    if (path.size() > 107) return Status(Code::kInvalid, path + ": too long for a socket");
    error_code error = asio::error::would_block;
    socket_.async_connect(asio::local::stream_protocol::endpoint(path), [&error](error_code e) { error = e; });
    if (!Run(error)) return Silent();
    if (!error) return CheckPeer(path);
    const Code code = error.value() == EACCES || error.value() == EPERM ? Code::kPermission : Code::kNotFound;
    return Status(code, path + ": " + std::strerror(error.value()), error.value());
  }

  Status Send(const HttpRequest& request) {
    http::request<http::string_body> message(http::string_to_verb(request.method), request.target, 11);
    message.set(http::field::host, "tierd");
    message.set(http::field::connection, "close");
    if (request.method != "GET") {
      message.set(http::field::content_type, "application/json");
      message.body() = request.body;
    }
    message.prepare_payload();
    error_code error = asio::error::would_block;
    http::async_write(socket_, message, [&error](error_code e, std::size_t) { error = e; });
    if (!Run(error)) return Silent();
    // A refusal may come back before the whole body was taken: what the daemon said is in the reply.
    if (error == asio::error::broken_pipe || error == asio::error::connection_reset) return Status::Ok();
    return error ? Status(Code::kIo, "sending the request: " + error.message()) : Status::Ok();
  }

  tierd::Result<HttpReply> Receive() {
    boost::beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxReplyBytes);
    error_code error = asio::error::would_block;
    http::async_read(socket_, buffer, parser, [&error](error_code e, std::size_t) { error = e; });
    if (!Run(error)) return Silent();
    if (error) return Status(Code::kIo, "reading the answer: " + error.message());
    return HttpReply{parser.get().result_int(), std::move(parser.get().body())};
  }

 private:
  // False when the time was up first; the step is then cancelled and over.
  bool Run(const error_code& error) {
    loop_.restart();
    loop_.run_until(end_);
    if (error != asio::error::would_block) return true;
    error_code ignored;
    socket_.close(ignored);
    loop_.restart();
    loop_.run();
    return false;
  }

  Status Silent() const { return Status(Code::kTimeout, "tierd" + (pid_ > 0 ? " (pid " + std::to_string(pid_) + ")" : "") + " does not answer: it is stopped or hung"); }

  // Somebody else's socket planted where ours is looked for gets no request (FAULTS T14).
  Status CheckPeer(const std::string& path) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return Status::FromErrno(errno, path);
    pid_ = peer.pid;
    if (peer.uid == ::geteuid()) return Status::Ok();
    return Status(Code::kPermission, path + " is served by uid " + std::to_string(peer.uid) + ", not by you");
  }

  asio::io_context loop_;
  asio::local::stream_protocol::socket socket_{loop_};
  const std::chrono::steady_clock::time_point end_;
  pid_t pid_ = 0;  // of who listens; 0: not known, as where it lives in another namespace
};

}  // namespace

tierd::Result<HttpReply> Exchange(const std::string& socket, const HttpRequest& request) {
  Session session(request.timeout_ms);
  if (Status status = session.Connect(socket); !status.ok()) return status;
  if (Status status = session.Send(request); !status.ok()) return status;
  return session.Receive();
}

}  // namespace tierctl
