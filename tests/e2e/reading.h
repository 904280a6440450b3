// Reading through libtier and straight from the file system, for comparisons byte by byte.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/io_uring_allowed.h"
#include "tier/tier.h"

namespace tierd::e2e {

// A client of its own for one daemon.
class Client {
 public:
  explicit Client(const std::string& socket, std::uint32_t flags = TIER_REQUIRE_DAEMON) {
    tier_options options{};
    options.size = sizeof options;
    options.socket = socket.c_str();
    options.flags = flags;
    error_ = tier_connect(&options, &client_);
  }
  ~Client() { tier_disconnect(client_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  tier_client* get() const { return client_; }
  int error() const { return error_; }

 private:
  tier_client* client_ = nullptr;
  int error_ = 0;
};

struct Got {
  int error = 0;
  std::uint32_t origin = TIER_FROM_BYPASS;
  std::string bytes;
};

inline Got Get(tier_client* client, const std::string& path, unsigned flags = 0) {
  tier_view view{};
  Got got;
  got.error = tier_get(client, path.c_str(), &view, flags);
  if (got.error != 0) return got;
  got.origin = view.origin;
  got.bytes.assign(static_cast<const char*>(view.data), view.size);
  tier_release(&view);
  return got;
}

inline Got Plain(const std::string& path) {
  Got got;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {-errno, TIER_FROM_BYPASS, ""};
  struct stat st {};
  if (::fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) got.error = -EISDIR;
  got.bytes.resize(got.error == 0 ? static_cast<std::size_t>(st.st_size) : 0);
  std::size_t done = 0;
  while (done < got.bytes.size()) {
    const ssize_t n = ::read(fd, got.bytes.data() + done, got.bytes.size() - done);
    if (n < 0 && done == 0) got.error = -errno;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  got.bytes.resize(done);
  ::close(fd);
  return got;
}

inline void Write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Content that depends on name and version, so that any wrong byte is seen.
inline std::string Content(const std::string& name, std::size_t bytes, int version = 1) {
  std::string text(bytes, '\0');
  std::uint64_t state = std::hash<std::string>{}(name) * 31 + static_cast<std::uint64_t>(version);
  for (std::size_t i = 0; i < bytes; i += 8) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    for (std::size_t k = i; k < std::min(bytes, i + 8); ++k) text[k] = static_cast<char>(state >> (8 * (k - i)));
  }
  return text;
}

// Makes the stamps of a tree old enough to be trusted (HAZARDS 2.12 looks at ctime too, so a daemon under test sets racy_window=0 instead).
inline const std::vector<std::string> kTrustStamps{"--set", "source.racy_window=0s"};

}  // namespace tierd::e2e
