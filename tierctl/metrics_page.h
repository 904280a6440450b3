// A page of metrics that a process with fewer rights has left, for one that may write where a node
// exporter reads (systemd/tierd-textfile@.service). Whoever wrote the page may have written
// anything.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tierd/base/status.h"

namespace tierctl {

inline constexpr std::size_t kMostPageBytes = std::size_t{1} << 20;

// A regular file and no link, or stdin ("-"), of at most kMostPageBytes. kInvalid: anything else.
tierd::Result<std::string> ReadPage(const std::string& path);

struct OwnPage {
  std::string text;          // with our own HELP and TYPE lines
  std::size_t left_out = 0;  // samples that are none of ours, or malformed, or there twice
};
// The samples of tierd's own families, in the order of the families. What follows the last newline
// was cut off and is not looked at.
OwnPage OwnFamilies(std::string_view page);

}  // namespace tierctl
