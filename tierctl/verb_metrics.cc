// metrics: the page of /metrics, over the control socket; to stdout, or to a file for the textfile collector of a node exporter.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "tierctl/metrics_page.h"
#include "tierctl/verbs.h"
#include "tierd/base/real_path.h"

namespace tierctl {
namespace {

// `name="value"` for a sample, from NAME=VALUE; what a label value cannot hold as it is, escaped.
std::string LabelText(const std::string& label) {
  const std::size_t equals = label.find('=');
  std::string text = label.substr(0, equals) + "=\"";
  for (const char c : label.substr(equals + 1)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text + "\"";
}

// A label that is given twice, or that samples of the page have themselves: nothing reads such a page. "" if there is none.
std::string AmbiguousLabel(const std::string& page, const std::vector<std::string>& labels) {
  std::set<std::string> names;
  for (const std::string& label : labels) {
    const std::string name = label.substr(0, label.find('='));
    const bool in_page = page.find("{" + name + "=\"") != std::string::npos || page.find("," + name + "=\"") != std::string::npos;  // in a value it is \"
    if (!names.insert(name).second || in_page) return name;
  }
  return "";
}

std::string WithLabels(const std::string& page, const std::vector<std::string>& labels) {
  if (labels.empty()) return page;
  std::string added;
  for (const std::string& label : labels) added += (added.empty() ? "" : ",") + LabelText(label);
  std::string text;
  for (std::size_t at = 0; at < page.size();) {
    const std::size_t end = std::min(page.find('\n', at), page.size());
    const std::string line = page.substr(at, end - at);
    const std::size_t name = line.find_first_of("{ ");
    if (line.starts_with('#') || name == std::string::npos) {
      text += line;
    } else if (line[name] == '{') {
      text += line.substr(0, name + 1) + added + "," + line.substr(name + 1);
    } else {
      text += line.substr(0, name) + "{" + added + "}" + line.substr(name);
    }
    text += '\n';
    at = end + 1;
  }
  return text;
}

// Whether the file may be replaced and removed: there is none yet, or a plain one. Devices and pipes are not ours, and stay.
bool IsReplaceable(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? S_ISREG(info.st_mode) : errno == ENOENT;
}

// Also by another name of it, such as /dev/stdout or the file that the shell opened for us: it is written to as any output, and stays.
bool IsStdout(const std::string& path) {
  struct stat named {}, open {};
  if (path.empty() || path == "-") return true;
  return ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &open) == 0 && named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

// Where a link leads; a link to nothing, and any other name, as it is.
std::string BehindLinks(const std::string& path) {
  const tierd::Result<std::string> found = tierd::RealPath(path);
  return found.ok() ? *found : path;
}

// `flags`: more of open(2).
bool WriteInto(const std::string& path, const std::string& text, int flags = O_TRUNC) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  FILE* const file = fd < 0 ? nullptr : ::fdopen(fd, "w");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written;
}

// The collector reads the file whenever it likes: it finds the old one or the new one, never a part. The new one has a name that the collector does not look at.
bool WriteWhole(const std::string& path, const std::string& text) {
  const std::string next = path + "." + std::to_string(::getpid());
  ::unlink(next.c_str());  // of a process that had our number, or planted: it is never written through
  if (WriteInto(next, text, O_EXCL) && std::rename(next.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(next.c_str());
  errno = error;
  return false;
}

// The page of the daemon, or what another process has left of it.
Answer Page(Context& context) {
  if (context.command.from.empty()) return context.client.GetText("/v1/metrics");
  Answer answer;
  tierd::Result<std::string> page = ReadPage(context.command.from);
  OwnPage own;
  if (page.ok()) own = OwnFamilies(*page);
  if (own.left_out > 0) context.output.Message("metrics: " + context.command.from + ": left out " + Plural(own.left_out, "line") + ": no samples of tierd's own metrics");
  answer.text = std::move(own.text);
  if (answer.text.empty()) {
    answer.exit = kExitUnreachable;
    answer.message = "metrics: " + (page.ok() ? context.command.from + ": no metrics of tierd's" : page.status().message());
  }
  return answer;
}

}  // namespace

int Metrics(Context& context) {
  const Answer answer = Page(context);
  const bool to_stdout = IsStdout(context.command.output_file);
  const std::string file = BehindLinks(context.command.output_file);
  if (!answer.ok()) {
    // What is in the file is of a daemon that is gone: a collector that shows it on would hide that.
    if (answer.exit == kExitUnreachable && !to_stdout && IsReplaceable(file)) ::unlink(file.c_str());
    return context.output.Fail(answer);
  }
  if (const std::string name = AmbiguousLabel(answer.text, context.command.labels); !name.empty())
    return context.output.Fail(kExitUsage, "metrics: label " + name + " would stand twice in a sample; give it another name");
  const std::string text = WithLabels(answer.text, context.command.labels);
  if (to_stdout) {
    context.output.Print(text);
    return kExitOk;
  }
  const bool written = IsReplaceable(file) ? WriteWhole(file, text) : WriteInto(file, text);
  if (!written) return context.output.Fail(kExitError, context.command.output_file + ": " + std::strerror(errno));
  return kExitOk;
}

}  // namespace tierctl
