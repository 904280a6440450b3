// /metrics: prometheus-cpp's families and text format, served over HTTP on loopback by a thread of its own, which asks the loop for a snapshot and waits at
// most a second for it: a hung loop costs the scrape its page (an empty one, by which alerts know), not the daemon. No path, user or pid is ever a label
// (FAULTS T12).
//
// Not prometheus-cpp's exposer: the server in it (CivetWeb) wakes every two seconds whether anybody asks or not, which an idle daemon must not.
//
// Owner: main.cc. Start and Stop on the loop thread.
#pragma once

#include <boost/asio/io_context.hpp>

#include <memory>
#include <string>

#include "tierd/base/status.h"
#include "tierd/engine/engine.h"
#include "tierd/server/session_hub.h"

namespace tierd::server {

class Metrics {
 public:
  // `started_s`: when the daemon started, in seconds since the epoch.
  Metrics(boost::asio::io_context& loop, engine::Engine& engine, SessionHub& sessions, double started_s);
  ~Metrics();

  // `address` is HOST:PORT, the host an IP address (port 0: any). One sentence when it cannot be bound.
  Status Start(const std::string& address);
  // HOST:PORT that is served; "" when off.
  const std::string& address() const { return address_; }
  // Stops serving; a scrape under way gets an empty page. Before the loop ends.
  void Stop();

  // The families as they are now, in the text format: what the control socket gives. Loop thread.
  std::string Text();

 private:
  class Page;
  class Server;
  std::shared_ptr<Page> page_;  // shared with what waits in the loop for a scrape
  std::unique_ptr<Server> server_;
  std::string address_;
};

}  // namespace tierd::server
