#include "tierd/lifeline.h"

#include <chrono>
#include <cstdio>

namespace tierd {

constexpr std::chrono::milliseconds kLookForClients{200};

Lifeline::Lifeline(boost::asio::io_context& loop, int fd) : pipe_(loop), timer_(loop) {
  boost::system::error_code unusable;  // then as without one
  if (fd >= 0) pipe_.assign(fd, unusable);
}

void Lifeline::Watch(std::function<std::uint64_t()> clients, std::function<void()> end) {
  if (!pipe_.is_open()) return;
  clients_ = std::move(clients);
  end_ = std::move(end);
  pipe_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    std::puts("tierd lifeline ended");  // tierctl waits for this line
    std::fflush(stdout);
    EndWithoutClients();
  });
}

void Lifeline::EndWithoutClients() {
  if (clients_() == 0) return end_();
  timer_.expires_after(kLookForClients);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) EndWithoutClients();
  });
}

}  // namespace tierd
