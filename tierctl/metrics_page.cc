#include "tierctl/metrics_page.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <set>
#include <vector>

#include "tierd/base/metric_table.h"
#include "tierd/base/printable.h"
#include "tierd/base/unique_fd.h"

namespace tierctl {
namespace {

bool IsOneOf(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

bool IsMetricName(std::string_view text) {
  constexpr std::string_view kFirst = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", kDigits = "0123456789";
  return !text.empty() && IsOneOf(text[0], kFirst) && std::all_of(text.begin(), text.end(), [&](char c) { return IsOneOf(c, kFirst) || IsOneOf(c, kDigits); });
}

// The family of a sample's name, or nullptr.
const tierd::MetricInfo* FamilyOf(std::string_view sample) {
  for (const tierd::MetricInfo& family : tierd::kMetrics) {
    if (!sample.starts_with(family.name)) continue;
    const std::string_view rest = sample.substr(family.name.size());
    const bool summary = family.type == tierd::MetricType::kSummary;
    const bool histogram = family.type == tierd::MetricType::kHistogram;
    const bool total = rest == "_sum" || rest == "_count";
    if (summary || histogram ? total || (histogram && rest == "_bucket") : rest.empty()) return &family;
  }
  return nullptr;
}

// Takes name="value" from the front.
bool TakeLabel(std::string_view& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || !IsMetricName(text.substr(0, equals)) || equals + 1 >= text.size() || text[equals + 1] != '"') return false;
  for (std::size_t at = equals + 2; at < text.size(); ++at) {
    if (text[at] == '"') {
      text.remove_prefix(at + 1);
      return true;
    }
    if (text[at] == '\\' && (++at == text.size() || !IsOneOf(text[at], "\\\"n"))) return false;
  }
  return false;
}

bool IsSampleValue(std::string_view text) {
  if (text == "+Inf" || text == "-Inf" || text == "Inf" || text == "NaN" || text == "Nan") return true;
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size();
}

// Bytes of `line` up to its value: name and labels. 0: not a sample.
std::size_t SeriesLength(std::string_view line) {
  const std::size_t name = line.find_first_of("{ ");
  if (name == std::string_view::npos || !IsMetricName(line.substr(0, name))) return 0;
  std::string_view rest = line.substr(name);
  if (rest[0] == '{') {
    do {
      rest.remove_prefix(1);  // the brace, or a comma
      if (!TakeLabel(rest)) return 0;
    } while (rest.starts_with(','));
    if (!rest.starts_with('}')) return 0;
    rest.remove_prefix(1);
  }
  return rest.starts_with(' ') && IsSampleValue(rest.substr(1)) ? line.size() - rest.size() : 0;
}

}  // namespace

tierd::Result<std::string> ReadPage(const std::string& path) {
  const bool named = path != "-";
  const tierd::UniqueFd file(named ? ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : ::dup(STDIN_FILENO));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return tierd::Status::FromErrno(errno, path);
  if (named && !S_ISREG(info.st_mode)) return tierd::Status(tierd::Code::kInvalid, path + ": not a regular file");
  std::string page;
  std::array<char, 65536> piece;
  for (;;) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return tierd::Status::FromErrno(errno, path);
    if (got == 0) return page;
    page.append(piece.data(), static_cast<std::size_t>(got));
    if (page.size() > kMostPageBytes) return tierd::Status(tierd::Code::kInvalid, path + ": larger than 1 MiB: not a page of tierd's");
  }
}

OwnPage OwnFamilies(std::string_view page) {
  OwnPage own;
  std::vector<std::string> texts(std::size(tierd::kMetrics));
  std::set<std::string_view> seen;
  for (std::size_t at = 0, end = 0; (end = page.find('\n', at)) != std::string_view::npos; at = end + 1) {
    const std::string_view line = page.substr(at, end - at);
    if (line.empty() || line[0] == '#') continue;
    const std::size_t series = tierd::Printable(line) == line ? SeriesLength(line) : 0;
    const tierd::MetricInfo* const family = series == 0 ? nullptr : FamilyOf(line.substr(0, line.find_first_of("{ ")));
    if (family == nullptr || !seen.insert(line.substr(0, series)).second) {
      ++own.left_out;
      continue;
    }
    texts[static_cast<std::size_t>(family - tierd::kMetrics)].append(line).append("\n");
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;
    const tierd::MetricInfo& family = tierd::kMetrics[i];
    own.text.append("# HELP ").append(family.name).append(" ").append(family.help).append("\n");
    own.text.append("# TYPE ").append(family.name).append(" ").append(tierd::MetricTypeName(family.type)).append("\n");
    own.text.append(texts[i]);
  }
  return own;
}

}  // namespace tierctl
