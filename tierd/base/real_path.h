// A path without links and "..", as the kernel names what it leads to. realpath(3) asks by
// faccessat2 whether a directory may be entered, which old filters of system calls refuse, and then
// fails for what is there.
#pragma once

#include <string>

#include "tierd/base/status.h"

namespace tierd {

// Of what is there. Blocks as long as the file system does.
Result<std::string> RealPath(const std::string& path);

}  // namespace tierd
