// Files that clients leave in the runtime directory for us to read and remove: the paths that a plan's indices mean (CONTROL.md, POST /v1/plans).
#pragma once

#include <string>

namespace tierd::server {

// Of clients that have ended before they told us of them: "plan-*.list" of ten minutes ago and earlier. The directory is often in memory, and a list of millions of paths is large.
// Nothing else there is touched; errors are passed over. Before the loop runs.
void RemoveForgottenLists(const std::string& directory);

}  // namespace tierd::server
