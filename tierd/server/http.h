// What goes in and out at an HttpDoor. Values; any thread.
#pragma once

#include <string>
#include <string_view>

namespace tierd::server {

struct HttpRequest {
  std::string_view method, target, body;
};

struct HttpResponse {
  unsigned status = 200;
  std::string body;
  std::string allow;  // with 405
  std::string type = "application/json";
};

}  // namespace tierd::server
