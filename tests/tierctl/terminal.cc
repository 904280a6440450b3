#include "terminal.h"

#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

namespace tierctl {

Drawn RunOnTerminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  std::vector<std::string> argv{"tierctl"}, envp = environment;  // the first of a name counts
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  envp.insert(envp.end(), {"PATH=/usr/bin:/bin", "TERM=xterm"});
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  };
  std::vector<char*> argv_pointers = pointers(argv), envp_pointers = pointers(envp);
  Drawn drawn;
  winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const auto began = std::chrono::steady_clock::now();
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (pid < 0) return drawn;
  if (pid == 0) {
    ::execve(TIERCTL_BINARY, argv_pointers.data(), envp_pointers.data());
    ::_exit(127);
  }
  char buffer[4096];
  for (ssize_t n; (n = ::read(terminal, buffer, sizeof buffer)) > 0;) {
    const double now = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (buffer[0] == '\r' && n > 1 && buffer[1] != '\n') drawn.times.push_back(now);
    drawn.text.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(terminal);
  int status = 0;
  ::waitpid(pid, &status, 0);
  drawn.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return drawn;
}

}  // namespace tierctl
