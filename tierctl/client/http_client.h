// One HTTP/1.1 request on a Unix stream socket. The only file of tierctl that includes Boost. Blocking, with a deadline; any thread.
#pragma once

#include <string>

#include "tierd/base/status.h"

namespace tierctl {

struct HttpRequest {
  std::string method = "GET";
  std::string target;  // "/v1/files?path=..."
  std::string body;    // JSON; "" for none
  int timeout_ms = 30'000;
};

struct HttpReply {
  unsigned status = 0;
  std::string body;
};

// kNotFound: nobody listens at `socket` (missing, refused, or not a stream socket: sys_errno tells); kPermission: not allowed, or the listener runs as another
// user; kTimeout; kIo: the connection broke or what came back is no HTTP.
tierd::Result<HttpReply> Exchange(const std::string& socket, const HttpRequest& request);

}  // namespace tierctl
