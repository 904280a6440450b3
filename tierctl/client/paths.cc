#include "tierctl/client/paths.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "tierd/base/printable.h"
#include "tierd/base/real_path.h"

namespace tierctl {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::vector<std::string_view> Parts(std::string_view path) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (end > at) parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string Joined(const std::vector<std::string_view>& parts) {
  std::string path;
  for (const std::string_view part : parts) path.append("/").append(part);
  return path.empty() ? "/" : path;
}

}  // namespace

std::string AbsolutePath(std::string_view path, const std::string& working_directory) {
  const std::string full = path.starts_with('/') ? std::string(path) : working_directory + "/" + std::string(path);
  std::vector<std::string_view> kept;
  std::size_t last_up = 0;  // parts up to the last ".."
  const std::vector<std::string_view> parts = Parts(full);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == "..") last_up = i + 1;
  }
  std::vector<std::string_view> tail(parts.begin() + static_cast<std::ptrdiff_t>(last_up), parts.end());
  std::string resolved;
  if (last_up != 0) {
    const std::string head = Joined({parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(last_up)});
    if (const tierd::Result<std::string> real = tierd::RealPath(head); real.ok()) {
      resolved = *real;
      kept = Parts(resolved);
    } else {
      tail = parts;
    }
  }
  for (const std::string_view part : tail) {
    if (part == "..") {
      if (!kept.empty()) kept.pop_back();
    } else if (part != ".") {
      kept.push_back(part);
    }
  }
  return Joined(kept);
}

std::string WhyAbsent(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return "";
  const bool absent = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG;
  return absent ? path + ": " + std::strerror(errno) : "";
}

std::string PercentEncoded(std::string_view bytes) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
  std::string out;
  for (const char c : bytes) {
    if (kPlain.find(c) != std::string_view::npos) {
      out += c;
    } else {
      char escape[4];
      std::snprintf(escape, sizeof escape, "%%%02X", static_cast<unsigned char>(c));
      out += escape;
    }
  }
  return out;
}

bool IsUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = tierd::Utf8Length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string Base64(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j) out += i + j <= bytes.size() ? kBase64[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string FromBase64(std::string_view text) {
  std::string out;
  if (text.size() % 4 != 0) return out;
  while (text.ends_with('=')) text.remove_suffix(1);
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t value = kBase64.find(c);
    if (value == std::string_view::npos) return "";
    group = (group << 6 | static_cast<std::uint32_t>(value)) & 0xffffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>(group >> bits & 0xff);
    }
  }
  return out;
}

nlohmann::json PathJson(std::string_view path) {
  if (IsUtf8(path)) return std::string(path);
  return {{"b64", Base64(path)}};
}

std::vector<nlohmann::json> PathBatches(const std::vector<std::string>& paths, const std::string& working_directory, std::size_t most) {
  std::vector<nlohmann::json> batches;
  std::size_t bytes = kBatchBytes;
  for (const std::string& given : paths) {
    nlohmann::json path = PathJson(AbsolutePath(given, working_directory));
    const std::size_t size = path.dump().size() + 1;  // as it is sent: escapes may make six bytes of one
    if (bytes + size > kBatchBytes || batches.back().size() == most) {
      batches.push_back(nlohmann::json::array());
      bytes = 0;
    }
    batches.back().push_back(std::move(path));
    bytes += size;
  }
  return batches;
}

std::string PathOf(const nlohmann::json& object) {
  if (const auto exact = object.find("path_b64"); exact != object.end() && exact->is_string()) return FromBase64(exact->get_ref<const std::string&>());
  const auto path = object.find("path");
  return path != object.end() && path->is_string() ? path->get<std::string>() : "";
}

std::string Escaped(std::string_view bytes) {
  std::string doubled;
  for (const char c : bytes) doubled += c == '\\' ? "\\\\" : std::string(1, c);
  return tierd::Printable(doubled);
}

}  // namespace tierctl
