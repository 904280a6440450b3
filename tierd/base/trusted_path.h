// Opens files that decide what this process does: its configuration, code that it loads. Nobody but
// root and the user of this process can have chosen what is found: each directory and link on the
// way and the file itself belong to one of them, and nobody else may write to any of them. A
// directory that others may write is accepted if it is sticky: they cannot rename what is not
// theirs. In a user namespace where not every id is mapped, owners without a number there count as
// root: most are.
//
// No thread rule. Waits for the file system: never on the loop.
#pragma once

#include <sys/stat.h>

#include <string>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"

namespace tierd {

// A descriptor of what lies at `path` (relative: below the working directory), opened with `flags`
// of open(2) and O_CLOEXEC. kPermission: somebody else may choose what lies there; the message
// names the place and the remedy. Other failures are those of open(2). `what` opens each message:
// "configuration".
Result<UniqueFd> OpenTrusted(const std::string& path, int flags, const std::string& what);

// Whether nobody but root and this user can rename what this user makes in the directory.
bool IsSafeToMakeIn(const struct stat& directory);

}  // namespace tierd
