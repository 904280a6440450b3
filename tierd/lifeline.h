// The read end of a pipe whose other end a job's processes hold: when the last of them has ended or closed it, and no client is left, the daemon that was started for
// the job (`tierctl run`) ends. Nothing is ever written to it.
//
// Owner: main.cc. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>

#include "tierd/base/status.h"

namespace tierd {

class Lifeline {
 public:
  // Whether `fd` can be one: kInvalid if it is no pipe. With anything else a daemon would stay for ever.
  static Status Check(int fd);

  // `fd` < 0: there is none, and nothing ever happens.
  Lifeline(boost::asio::io_context& loop, int fd);

  // `clients` says how many there are; `end` is called once.
  void Watch(std::function<std::uint64_t()> clients, std::function<void()> end);

 private:
  void WaitForItsEnd();
  // Whether anybody has an end for writing: of a pipe with a name, also anew.
  bool IsHeld();
  void EndWithoutClients();

  boost::asio::posix::stream_descriptor pipe_;
  boost::asio::steady_timer timer_;
  std::function<std::uint64_t()> clients_;
  std::function<void()> end_;
};

}  // namespace tierd
