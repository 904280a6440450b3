// top: the screen of top_screen.h, again and again, until q or ^C; as a list of screens where stdout is no terminal (or --batch).
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tierctl/run/command.h"
#include "tierctl/top_history.h"
#include "tierctl/top_screen.h"
#include "tierctl/verbs.h"
#include "tierd/base/unique_fd.h"

namespace tierctl {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr std::size_t kColumns = 80;

// The signals that ask us to end, as something to read: blocked, but for those that are ignored (nohup).
tierd::UniqueFd EndSignals() {
  sigset_t asked;
  sigemptyset(&asked);
  for (const int number : {SIGTERM, SIGHUP, SIGINT, SIGQUIT}) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&asked, number);
  }
  tierd::UniqueFd fd(::signalfd(-1, &asked, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd.valid()) ::sigprocmask(SIG_BLOCK, &asked, nullptr);
  return fd;
}

// Takes keys as they are pressed, and the other screen of the terminal; gives both back at the end. ^C arrives as a key and a signal as news, so that the end is always reached.
class Screen {
 public:
  explicit Screen(bool wanted) {
    if (!wanted || ::isatty(STDIN_FILENO) != 1 || ::tcgetattr(STDIN_FILENO, &saved_) != 0) return;
    termios raw = saved_;
    raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO | ISIG));
    signals_ = EndSignals();
    live_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    if (live_) std::fputs("\033[?1049h\033[?25l", stdout);
  }
  ~Screen() {
    if (!live_) return;
    std::fputs("\033[?25h\033[?1049l", stdout);
    std::fflush(stdout);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &saved_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool live() const { return live_; }
  // From the top, each line cleared behind its text, the rest below: nothing flickers.
  void Draw(const std::string& text) const {
    std::string out = "\033[H";
    for (const char c : text) out += c == '\n' ? std::string("\033[K\r\n") : std::string(1, c);
    out += "\033[J";
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  }
  // The signal that asked for the end; 0: none did.
  int signal_number() const { return signal_number_; }
  // False when it is time to leave.
  bool Wait(double seconds) {
    const auto end = steady_clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now()).count();
      if (left <= 0) return true;
      pollfd inputs[2] = {{live_ ? STDIN_FILENO : -1, POLLIN, 0}, {signals_.get(), POLLIN, 0}};
      if (::poll(inputs, 2, static_cast<int>(left)) <= 0) continue;
      signalfd_siginfo news{};
      if (inputs[1].revents != 0 && ::read(signals_.get(), &news, sizeof news) == sizeof news) {
        signal_number_ = static_cast<int>(news.ssi_signo);
        return false;
      }
      if (inputs[0].revents == 0) continue;
      char key = 0;
      if (::read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == 3) return false;
    }
  }

 private:
  termios saved_{};
  tierd::UniqueFd signals_;
  int signal_number_ = 0;
  bool live_ = false;
};

void SizeOfTerminal(std::size_t* columns, std::size_t* rows) {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return;
  *columns = size.ws_col;
  *rows = size.ws_row;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Looks until the user has enough, or the daemon does not answer.
Answer Show(Context& context, Screen& screen) {
  json before_status = json::object(), before_jobs = json::array();
  TopHistory history;
  const bool unicode = IsUtf8(Variable("LC_ALL"), Variable("LC_CTYPE"), Variable("LANG"));
  auto looked = steady_clock::now();
  for (std::uint64_t n = 0; context.command.count == 0 || n < context.command.count; ++n) {
    if (n != 0 && !screen.Wait(context.command.interval_s)) break;
    Answer status = context.client.Get("/v1/status");
    if (!status.ok()) return status;
    const Answer jobs = context.client.Get("/v1/jobs");
    if (!jobs.ok()) return jobs;
    const auto now = steady_clock::now();
    std::size_t columns = kColumns, rows = 0;
    if (screen.live()) SizeOfTerminal(&columns, &rows);
    const double seconds = n == 0 ? 0 : std::chrono::duration<double>(now - looked).count();
    if (n != 0) history.Add(before_status, status.body, seconds);
    // A list of screens has its history in itself.
    const TopStyle style{columns, rows == 0 ? 0 : rows - 1, context.output.palette(), screen.live() ? history.Text(unicode) : ""};
    const std::string text = TopScreen({before_status, before_jobs}, {status.body, ListOf(jobs.body, "jobs")}, seconds, style);
    if (context.output.json()) context.output.PrintJson({{"status", status.body}, {"jobs", ListOf(jobs.body, "jobs")}});
    else if (screen.live()) screen.Draw(text);
    else context.output.Print((n == 0 ? "" : "\n") + text);
    std::fflush(stdout);
    looked = now;
    before_status = std::move(status.body);
    before_jobs = ListOf(jobs.body, "jobs");
  }
  return Answer();
}

}  // namespace

int Top(Context& context) {
  Answer end;
  int signal_number = 0;
  {
    Screen screen(!context.command.batch && !context.output.json() && ::isatty(STDOUT_FILENO) == 1);
    end = Show(context, screen);
    signal_number = screen.signal_number();
  }
  if (signal_number != 0) run::EndBySignal(signal_number);
  return end.ok() ? kExitOk : context.output.Fail(end);
}

}  // namespace tierctl
