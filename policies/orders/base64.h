// Base64 (RFC 4648, with padding), for the state of a generator in a plan. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tierd::orders {

std::string EncodeBase64(std::string_view bytes);
// Empty when the text is not base64 to the last character.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace tierd::orders
