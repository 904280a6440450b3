// What a service manager hears from the daemon (Type=notify): ready, reloading, stopping, and a sign of life from the loop for its watchdog. One datagram each on
// the socket that $NOTIFY_SOCKET names, as sd_notify(3) describes; without that variable nothing is ever sent.
//
// A sign of life comes from a timer on the loop: a loop that hangs in a turn sends none, and the manager starts the service anew. What hangs elsewhere (a source,
// a disk) is no reason for that: it costs the loop nothing.
//
// Owner: main.cc. Loop thread only. Nothing fails: a manager that cannot be reached is none.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <string>

#include "tierd/base/unique_fd.h"
#include "tierd/engine/out_of_memory.h"

namespace tierd {

class ServiceManager {
 public:
  // Takes what the environment says: NOTIFY_SOCKET, WATCHDOG_USEC, and WATCHDOG_PID, which must be ours if it is there.
  explicit ServiceManager(boost::asio::io_context& loop);

  // The service works (again, after Reloading). From the first call on the watchdog hears of us.
  void Ready();
  void Reloading();
  // No sign of life follows: what takes too long to stop is the manager's to end.
  void Stopping();

  // Time between two signs of life: a quarter of what the manager allows, so that a loop that is late once is not taken for dead. 0: it wants none.
  std::chrono::microseconds interval() const { return interval_; }

 private:
  void Send(const std::string& text) const;
  void Live();

  UniqueFd socket_;
  std::string address_;  // path, or name with a NUL in front; "": no manager
  std::chrono::microseconds interval_{0};
  boost::asio::steady_timer timer_;
  engine::HandlerMemory timer_memory_;
};

}  // namespace tierd
