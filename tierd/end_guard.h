// Ends the process where the loop does not: a policy of the user's that never returns keeps the loop
// thread for ever, and with it all that would end the daemon. The guard takes the signals and watches
// the job's lifeline (lifeline.h) on a thread of its own, hands both to the loop, and ends the process
// by SIGKILL when the loop does not do its part in time.
//
// Owner: main.cc. Watch() is called once, on the loop thread, before the loop runs. The guard ends
// with the process.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <functional>
#include <thread>

#include "tierd/base/status.h"
#include "tierd/engine/out_of_memory.h"

namespace tierd {

class EndGuard {
 public:
  // `lifeline` < 0: there is none. Signals are held back from here on, until Watch().
  EndGuard(boost::asio::io_context& loop, int lifeline);
  ~EndGuard();
  EndGuard(const EndGuard&) = delete;
  EndGuard& operator=(const EndGuard&) = delete;

  // Each signal (SIGTERM, SIGINT, SIGHUP) runs `on_signal` on the loop thread. kNoSpace: no thread.
  Status Watch(std::function<void(int)> on_signal);

 private:
  void WaitForSignal();
  void ExpectEnd();
  void WaitForJob();
  void AskLoop();
  [[noreturn]] static void End(const char* why);

  // Constant after Watch.
  boost::asio::io_context& loop_;
  std::function<void(int)> on_signal_;
  // Owned by the guard's thread.
  boost::asio::io_context own_{1};
  boost::asio::signal_set signals_;
  boost::asio::posix::stream_descriptor lifeline_;
  boost::asio::steady_timer stop_timer_;
  boost::asio::steady_timer ask_timer_;
  int unanswered_ = 0;
  bool stopping_ = false;
  engine::HandlerMemory signal_memory_;
  std::atomic<bool> answered_{true};  // by the loop thread
  std::thread thread_;
};

}  // namespace tierd
