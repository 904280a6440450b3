#include "run_tierctl.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tierd/base/check.h"
#include "tierd/base/unique_fd.h"

namespace tierctl {
namespace {

using tierd::UniqueFd;

// Files in memory for the three streams: no pipe can fill up.
UniqueFd Stream(const std::string& content) {
  UniqueFd fd(::memfd_create("stream", MFD_CLOEXEC));
  TIERD_CHECK(fd.valid() && ::pwrite(fd.get(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  return fd;
}

std::string Content(int fd) {
  std::string text;
  char buffer[65536];
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(fd, buffer, sizeof buffer, at);
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    at += n;
  }
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Ran RunProgram(const std::vector<std::string>& command, const std::vector<std::string>& environment, const std::string& input) {
  const UniqueFd in = Stream(input);
  const UniqueFd out = Stream("");
  const UniqueFd err = Stream("");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, err.get(), 2);
  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = environment;
  variables.emplace_back("PATH=/usr/bin:/bin");
  pid_t child = 0;
  const int error = ::posix_spawn(&child, command[0].c_str(), &actions, nullptr, Pointers(arguments).data(), Pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  Ran ran;
  if (error != 0) return ran;
  int status = 0;
  ::waitpid(child, &status, 0);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  ran.out = Content(out.get());
  ran.err = Content(err.get());
  return ran;
}

Ran RunTierctl(const std::vector<std::string>& arguments, const std::vector<std::string>& environment, const std::string& input) {
  std::vector<std::string> command = {TIERCTL_BINARY};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunProgram(command, environment, input);
}

}  // namespace tierctl
