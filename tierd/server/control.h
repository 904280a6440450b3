// The control plane: HTTP/1.1 + JSON on a Unix socket, as CONTROL.md says. This file is the door (connections, limits, time-outs); what the end
// points answer is ControlApi.
//
// Owner: main.cc. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "tierd/base/status.h"
#include "tierd/engine/out_of_memory.h"
#include "tierd/server/control_api.h"

namespace tierd::server {

class Control {
 public:
  static constexpr std::size_t kMaxBodyBytes = 1 << 20;
  static constexpr std::size_t kMaxHeaderBytes = 32 * 1024;  // a path of 4,096 bytes is three times as long in a query

  struct Options {
    std::size_t max_connections = 16;                   // more at a time are told to come back (429)
    std::chrono::milliseconds request_timeout{60'000};  // until a whole request has come; then the connection is closed
    std::chrono::milliseconds answer_timeout{5'000};    // until the whole answer has been taken; likewise
  };
  Control(boost::asio::io_context& loop, ControlApi& api, const Options& options) : loop_(loop), api_(api), options_(options), pause_(loop) {}
  ~Control() { Close(); }

  // Binds `path` (0600). The runtime directory has been prepared; a socket file nobody listens on is replaced.
  Status Listen(const std::string& path);
  void Close();

 private:
  class Connection;
  void Accept();
  // False: not now (no descriptors, no memory).
  bool AcceptOne();
  void AcceptLater();

  boost::asio::io_context& loop_;
  ControlApi& api_;
  const Options options_;
  std::unique_ptr<boost::asio::local::stream_protocol::acceptor> acceptor_;
  boost::asio::steady_timer pause_;
  engine::HandlerMemory accept_memory_;
  std::string path_;
  std::shared_ptr<std::size_t> connections_ = std::make_shared<std::size_t>(0);  // shared with connections, which outlive Close by a turn
};

}  // namespace tierd::server
