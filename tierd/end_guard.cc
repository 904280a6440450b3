#include "tierd/end_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/post.hpp>

#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace tierd {
namespace {

// The stop itself takes some two seconds, with a source that hangs.
constexpr std::chrono::seconds kStop{10};
// The guard counts its own rounds, not the time: where the whole process is stopped, or gets no
// processor, neither does the guard.
constexpr std::chrono::milliseconds kRound{250};
constexpr int kMostUnanswered = 12;

}  // namespace

EndGuard::EndGuard(boost::asio::io_context& loop, int lifeline)
    : loop_(loop), signals_(own_, SIGTERM, SIGINT, SIGHUP), lifeline_(own_), stop_timer_(own_), ask_timer_(own_) {
  boost::system::error_code unusable;
  const int copy = lifeline < 0 ? -1 : ::fcntl(lifeline, F_DUPFD_CLOEXEC, 3);
  if (copy >= 0) lifeline_.assign(copy, unusable);
}

EndGuard::~EndGuard() {
  own_.stop();
  if (thread_.joinable()) thread_.join();
}

Status EndGuard::Watch(std::function<void(int)> on_signal) {
  on_signal_ = std::move(on_signal);
  WaitForSignal();
  if (lifeline_.is_open()) WaitForJob();
  try {
    thread_ = std::thread([this] {
      while (!engine::Survives([this] { own_.run(); })) {
      }
    });
  } catch (const std::exception& error) {
    return Status(Code::kNoSpace, std::string("no thread for signals: ") + error.what() + "; raise the limit of processes (ulimit -u)");
  }
  return Status::Ok();
}

void EndGuard::WaitForSignal() {
  const auto on_signal = [this](const boost::system::error_code& error, int number) {
    if (error) return;
    WaitForSignal();
    const bool told = engine::Survives([this, number] {
      boost::asio::post(loop_, [this, number] { on_signal_(number); });
      if (number != SIGHUP) ExpectEnd();
    });
    if (!told && number != SIGHUP) End("tierd: out of memory at a signal that ends it\n");
  };
  signals_.async_wait(boost::asio::bind_allocator(signal_memory_.allocator(), on_signal));
}

void EndGuard::ExpectEnd() {
  if (std::exchange(stopping_, true)) return;
  stop_timer_.expires_after(kStop);
  stop_timer_.async_wait([](const boost::system::error_code& cancelled) {
    if (!cancelled) End("tierd: a signal was to end it, and it has not ended for 10 s\n");
  });
}

void EndGuard::WaitForJob() {
  lifeline_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (!error) AskLoop();
  });
}

// While clients are left the daemon stays, so that only a loop that answers nothing is ended.
void EndGuard::AskLoop() {
  unanswered_ = answered_.exchange(false) ? 0 : unanswered_ + 1;
  if (unanswered_ >= kMostUnanswered) End("tierd: its job is over and its loop hangs (a policy that does not return?)\n");
  // One question at a time: a loop that hangs would gather them.
  if (unanswered_ == 0) boost::asio::post(loop_, [this] { answered_ = true; });
  ask_timer_.expires_after(kRound);
  ask_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) AskLoop();
  });
}

void EndGuard::End(const char* why) {
  (void)!::write(STDERR_FILENO, why, std::strlen(why));
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

}  // namespace tierd
