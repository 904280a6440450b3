// /metrics: prometheus-cpp's exposer on loopback, fed by one Collectable. A scrape runs on the exposer's thread, asks the loop for a snapshot
// and waits at most a second for it (a hung loop costs the scrape, not the daemon). No path, user or pid is ever a label (FAULTS T12).
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

  // `address` is HOST:PORT (port 0: any). One sentence when it cannot be bound.
  Status Start(const std::string& address);
  // HOST:PORT that is served; "" when off.
  const std::string& address() const { return address_; }
  // Stops serving; a scrape under way gets an empty answer. Before the loop ends.
  void Stop();

  // The families as they are now, in the text format: what the control socket gives. Loop thread.
  std::string Text();

 private:
  class Collector;
  struct Server;  // hides prometheus-cpp
  std::shared_ptr<Collector> collector_;  // shared with the exposer, which keeps a weak reference
  std::unique_ptr<Server> server_;
  std::string address_;
};

}  // namespace tierd::server
