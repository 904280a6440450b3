#include "tierd/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/bind_allocator.hpp>

#include <cstdlib>
#include <cstring>
#include <ctime>

namespace tierd {
namespace {

// The number in a variable of the environment; 0 where there is none.
std::uint64_t NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

std::uint64_t MonotonicMicroseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

}  // namespace

ServiceManager::ServiceManager(boost::asio::io_context& loop) : timer_(loop) {
  const char* address = std::getenv("NOTIFY_SOCKET");
  if (address == nullptr || (address[0] != '/' && address[0] != '@') || std::strlen(address) >= sizeof(sockaddr_un::sun_path)) return;
  address_ = address;
  if (address_[0] == '@') address_[0] = '\0';
  socket_ = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const std::uint64_t pid = NumberIn("WATCHDOG_PID");
  if (pid == 0 || pid == static_cast<std::uint64_t>(::getpid())) interval_ = std::chrono::microseconds(NumberIn("WATCHDOG_USEC") / 4);
}

void ServiceManager::Ready() {
  Send("READY=1");
  if (interval_.count() > 0) Live();
}

// MONOTONIC_USEC is what Type=notify-reload asks for; others ignore it.
void ServiceManager::Reloading() { Send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(MonotonicMicroseconds())); }

void ServiceManager::Stopping() {
  interval_ = std::chrono::microseconds(0);
  (void)engine::Survives([this] { timer_.cancel(); });
  Send("STOPPING=1");
}

void ServiceManager::Live() {
  const auto on_time = [this](const boost::system::error_code& error) {
    if (!error) Live();
  };
  Send("WATCHDOG=1");
  // Without memory for the timer this was the last sign: such a daemon is better started anew.
  (void)engine::Survives([&] {
    timer_.expires_after(interval_);
    timer_.async_wait(boost::asio::bind_allocator(timer_memory_.allocator(), on_time));
  });
}

void ServiceManager::Send(const std::string& text) const {
  if (address_.empty()) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  (void)::sendto(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), length);
}

}  // namespace tierd
