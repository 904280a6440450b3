// File names on their way between command line, JSON, URLs and the terminal. Names are bytes; see CONTROL.md for how JSON carries them. Pure, but for
// AbsolutePath, which may resolve symbolic links, and WhyAbsent.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tierctl {

// Absolute, without "." and "..": relative to `working_directory`. ".." behind a symbolic link is resolved by the file system, and lexically if that fails.
std::string AbsolutePath(std::string_view path, const std::string& working_directory);

// "PATH: No such file or directory", or "" if there is something. For paths of which the daemon knows nothing: a slip of the pen is then said to be one.
std::string WhyAbsent(const std::string& path);

// Percent-encodes all but letters, digits and "-._~/".
std::string PercentEncoded(std::string_view bytes);

bool IsUtf8(std::string_view bytes);
std::string Base64(std::string_view bytes);
// "" for what is no base64.
std::string FromBase64(std::string_view text);

// An element of "paths" in a request: a string, or {"b64": ...} for what is not UTF-8.
nlohmann::json PathJson(std::string_view path);
// Of one request; below the limits of CONTROL.md (10,000 paths, 1 MiB).
inline constexpr std::size_t kBatchPaths = 10'000;
inline constexpr std::size_t kBatchBytes = 900'000;
// The paths, made absolute, in their order, as the "paths" of as many requests as it takes: each of at most `most` (1 to kBatchPaths) and kBatchBytes.
std::vector<nlohmann::json> PathBatches(const std::vector<std::string>& paths, const std::string& working_directory, std::size_t most = kBatchPaths);
// The exact bytes of the "path" (or "path_b64") of an object in an answer.
std::string PathOf(const nlohmann::json& object);

// For a terminal: control characters, bytes that are no UTF-8, and backslashes as \n, \t, \x1b, \\ ...: a name cannot move the cursor or fake a line.
std::string Escaped(std::string_view bytes);

}  // namespace tierctl
