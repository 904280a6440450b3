#include "tierd/server/control_json.h"

#include <cstdint>

namespace tierd::server {
namespace {

// Length of the valid UTF-8 sequence at `text`, 0 if there is none.
std::size_t Utf8Length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) || (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return 0;
  return length;
}

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string EncodeBase64(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  std::string out;
  std::uint32_t group = 0;
  int bits = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    group = group << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out += static_cast<char>(group >> bits & 0xff);
  }
  return out;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = HexValue(text[i + 1]);
    const int low = HexValue(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace

const char* StalenessName(abi::Staleness staleness) {
  constexpr const char* kNames[] = {"immutable", "ttl", "open"};
  return kNames[static_cast<std::size_t>(staleness)];
}

HttpResponse Ok(const nlohmann::json& body, unsigned status) { return {status, body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", ""}; }

HttpResponse JsonError(unsigned status, const char* code, const std::string& message, const std::vector<std::string>& details) {
  nlohmann::json error{{"code", code}, {"message", message}};
  if (!details.empty()) error["details"] = details;
  return Ok({{"error", error}}, status);
}

void PutPath(nlohmann::json& object, std::string_view path) {
  std::string shown;
  bool exact = true;
  for (std::string_view rest = path; !rest.empty();) {
    const std::size_t length = Utf8Length(rest);
    if (length == 0) {
      exact = false;
      shown += "\xef\xbf\xbd";
      rest.remove_prefix(1);
    } else {
      shown += rest.substr(0, length);
      rest.remove_prefix(length);
    }
  }
  object["path"] = std::move(shown);
  if (!exact) object["path_b64"] = EncodeBase64(path);
}

std::optional<std::string> TakePath(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() || value.size() != 1 || !value.contains("b64") || !value["b64"].is_string()) return std::nullopt;
  return DecodeBase64(value["b64"].get_ref<const std::string&>());
}

std::optional<Target> ParseTarget(std::string_view target) {
  Target parsed;
  const std::size_t question = target.find('?');
  parsed.path = std::string(target.substr(0, question));
  if (question == std::string_view::npos) return parsed;
  std::string_view rest = target.substr(question + 1);
  while (!rest.empty()) {
    const std::string_view member = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), member.size() + 1));
    const std::size_t equals = member.find('=');
    const auto name = PercentDecode(member.substr(0, equals));
    const auto value = equals == std::string_view::npos ? std::optional<std::string>("") : PercentDecode(member.substr(equals + 1));
    if (!name || !value || !parsed.query.emplace(*name, *value).second) return std::nullopt;
  }
  return parsed;
}

std::optional<std::string> NormalPath(std::string_view path) {
  if (path.empty() || path.front() != '/' || path.find('\0') != std::string_view::npos) return std::nullopt;
  std::string normal;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view component = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    if (component.empty()) continue;
    if (component == "." || component == "..") return std::nullopt;
    normal.append(1, '/').append(component);
  }
  return normal.empty() ? "/" : normal;
}

}  // namespace tierd::server
