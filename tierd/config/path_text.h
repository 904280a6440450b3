// Absolute paths as text: no file system is asked. Pure functions.
#pragma once

#include <string>

namespace tierd::config {

inline std::string ParentOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

inline bool IsAtOrBelow(const std::string& path, const std::string& above) {
  return path == above || above == "/" || (path.starts_with(above) && path[above.size()] == '/');
}

}  // namespace tierd::config
