#include "tierd/lifeline.h"

#include <poll.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace tierd {

namespace {

constexpr std::chrono::milliseconds kLookForClients{200};

void Say(const char* line) {
  std::puts(line);
  std::fflush(stdout);
}

}  // namespace

Status Lifeline::Check(int fd) {
  struct stat info {};
  if (fd < 0 || (::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode))) return Status::Ok();
  return Status(Code::kInvalid, "--lifeline " + std::to_string(fd) + ": not the end of a pipe");
}

Lifeline::Lifeline(boost::asio::io_context& loop, int fd) : pipe_(loop), timer_(loop) {
  boost::system::error_code unusable;  // not that of a pipe (Check)
  if (fd >= 0) pipe_.assign(fd, unusable);
}

void Lifeline::Watch(std::function<std::uint64_t()> clients, std::function<void()> end) {
  if (!pipe_.is_open()) return;
  clients_ = std::move(clients);
  end_ = std::move(end);
  WaitForItsEnd();
}

void Lifeline::WaitForItsEnd() {
  pipe_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    Say("tierd lifeline ended");  // tierctl waits for this line
    EndWithoutClients();
  });
}

bool Lifeline::IsHeld() {
  pollfd state{pipe_.native_handle(), POLLIN, 0};
  return ::poll(&state, 1, 0) == 0;
}

void Lifeline::EndWithoutClients() {
  if (IsHeld()) {
    Say("tierd lifeline held");
    return WaitForItsEnd();
  }
  if (clients_() == 0) return end_();
  timer_.expires_after(kLookForClients);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) EndWithoutClients();
  });
}

}  // namespace tierd
