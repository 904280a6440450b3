// Run-time control over a Unix stream socket: one command line per connection, one answer, closed.
//
// The answer's first line is "ok" or "error: SENTENCE"; after "ok" may follow a body. README.md lists
// the commands. Thread rule: ControlServer owns its thread; RunCommand may run on any.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "tests/pfs_sim/file_system.h"

namespace pfs_sim {

struct CommandResult {
  bool ok = true;
  std::string text;  // the body, or the sentence that says what is wrong
};

// Executes one line, `quit` excepted.
CommandResult RunCommand(FileSystem& fs, const std::string& line);

// Serves the socket until it is destroyed. `on_quit` is called (once per command) for `quit`.
class ControlServer {
 public:
  ControlServer(FileSystem& fs, std::function<void()> on_quit) : fs_(fs), on_quit_(std::move(on_quit)) {}
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Replaces a socket that a dead server left at `path`. False with a sentence in *why.
  bool Start(const std::string& path, std::string* why);

 private:
  void Run();
  void Serve(int connection);

  FileSystem& fs_;
  const std::function<void()> on_quit_;
  std::string path_;
  int listener_ = -1;
  int stop_event_ = -1;
  std::thread thread_;
};

// The client's side: sends `line` to the server at `path`.
CommandResult SendCommand(const std::string& path, const std::string& line);

}  // namespace pfs_sim
