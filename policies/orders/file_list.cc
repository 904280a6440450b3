#include "policies/orders/file_list.h"

#include <algorithm>
#include <array>

#include "policies/orders/plan.h"

namespace tierd::orders {
namespace {

// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none (RFC 3629: no overlong forms, no surrogates).
std::size_t SequenceBytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool shortest = first != 0xe0 || byte(1) >= 0xa0;
    const bool surrogate = first == 0xed && byte(1) >= 0xa0;
    return continues(1) && continues(2) && shortest && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool inside = (first != 0xf0 || byte(1) >= 0x90) && (first != 0xf4 || byte(1) < 0x90);
    return continues(1) && continues(2) && continues(3) && inside ? 4 : 0;
  }
  return 0;
}

// Takes the next code point as os.fsdecode has it: a byte that is no UTF-8 becomes U+DC00 + byte.
std::uint32_t TakePoint(std::string_view* text) {
  const std::size_t bytes = SequenceBytes(*text);
  const auto first = static_cast<unsigned char>(text->front());
  std::uint32_t point = bytes == 0 ? 0xdc00u + first : bytes == 1 ? first : first & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) point = point << 6 | (static_cast<unsigned char>((*text)[i]) & 0x3fu);
  text->remove_prefix(std::max<std::size_t>(bytes, 1));
  return point;
}

bool IsImage(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kExtensions = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};
  std::string lower(name.substr(name.size() - std::min<std::size_t>(name.size(), 5)));
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::any_of(kExtensions.begin(), kExtensions.end(), [&](std::string_view extension) { return lower.ends_with(extension); });
}

struct Entry {
  std::string_view top;        // class
  std::string_view directory;  // whole
  std::string_view name;
  std::uint32_t index;
};

bool Before(const Entry& a, const Entry& b) {
  if (const int order = ComparePythonNames(a.top, b.top); order != 0) return order < 0;
  if (const int order = ComparePythonNames(a.directory, b.directory); order != 0) return order < 0;
  return ComparePythonNames(a.name, b.name) < 0;
}

}  // namespace

int ComparePythonNames(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::uint32_t x = TakePoint(&a);
    const std::uint32_t y = TakePoint(&b);
    if (x != y) return x < y ? -1 : 1;
  }
  return a.empty() ? (b.empty() ? 0 : -1) : 1;
}

std::vector<std::uint32_t> ImageFolderOrder(const std::vector<std::string>& paths) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string_view path = paths[i];
    const std::size_t top = path.find('/');
    const std::size_t name = path.rfind('/');
    if (top == std::string_view::npos || top == 0 || !IsImage(path.substr(name + 1))) continue;
    entries.push_back({path.substr(0, top), path.substr(0, name), path.substr(name + 1), static_cast<std::uint32_t>(i)});
  }
  std::sort(entries.begin(), entries.end(), Before);
  std::vector<std::uint32_t> order(entries.size());
  std::transform(entries.begin(), entries.end(), order.begin(), [](const Entry& entry) { return entry.index; });
  return order;
}

Result<std::vector<std::string>> ParseFileList(std::string_view text) {
  const char separator = text.find('\0') != std::string_view::npos ? '\0' : '\n';
  std::vector<std::string> paths;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (separator == '\n' && line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) paths.emplace_back(line);
    if (paths.size() > kMaxSamples) return Status(Code::kInvalid, "list: more than " + std::to_string(kMaxSamples) + " paths");
  }
  if (paths.empty()) return Status(Code::kInvalid, "list: no path in it");
  return paths;
}

}  // namespace tierd::orders
