// The control plane: HTTP/1.1 + JSON on a Unix socket, as CONTROL.md says. This file says where its door is and who may come in; what the end points
// answer is ControlApi.
//
// Owner: main.cc. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <string>

#include "tierd/base/status.h"
#include "tierd/server/control_api.h"
#include "tierd/server/http_door.h"

namespace tierd::server {

class Control {
 public:
  Control(boost::asio::io_context& loop, ControlApi& api, const HttpLimits& limits);
  ~Control() { Close(); }

  // Binds `path` (0600). The runtime directory has been prepared; a socket file nobody listens on is replaced.
  Status Listen(const std::string& path);
  void Close();

 private:
  using Door = HttpDoor<boost::asio::local::stream_protocol>;
  Door::Handler Admit(int descriptor);

  boost::asio::io_context& loop_;
  ControlApi& api_;
  Door door_;
  std::string path_;
};

}  // namespace tierd::server
