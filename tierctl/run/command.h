// Runs the command of `tierctl run` as if the wrapper were not there: same terminal, same process group; signals that only we get are passed on (witness.h), those of the command
// itself to our parent, which it takes for its own; a stop from
// the terminal stops us too; and we end as it ended.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tierctl::run {

struct Ended {
  int exit_code = 0;      // of a command that ended by itself; 126, 127: it could not be started
  int signal_number = 0;  // of one that was killed; else 0
};

// Standard streams that are closed are /dev/null to us until the command takes our place or runs: else a pipe or a lock that we open gets such a number, and is written over
// where the daemon gets streams of its own. The command finds them closed, as we did.
void HoldStandardStreams();

struct CommandLine {
  std::vector<std::string> arguments;                               // the program first, looked for in PATH
  std::vector<std::pair<std::string, std::string>> environment;     // added to ours
  std::vector<const char*> removed;                                 // names in ours that it has not
  int inherited_fd = -1;                                            // left open in it; -1: none
};

// Signals as we need them, from the first child and the first file on. The command gets them back as they were.
// SIGCHLD comes: who starts us may have it ignored, and then no child could be waited for. SIGXFSZ and SIGPIPE do not: a file that may grow no further (ulimit -f), or a summary that
// nobody reads any more, is an error, not the end.
class OwnSignals {
 public:
  OwnSignals();
  void Restore() const;

 private:
  bool child_ignored_ = false;
  bool limit_ignored_ = false;
  bool pipe_ignored_ = false;
};

// After it any signal that would end this process ends it as the command has ended.
Ended RunCommand(const CommandLine& line, const OwnSignals& own_signals);

// Ends this process by the signal that ended the command, without a second core dump.
[[noreturn]] void EndBySignal(int signal_number);
// Becomes the command.
int BecomeCommand(const CommandLine& line);

}  // namespace tierctl::run
