// By which names the sources' roots are found, when names are changed. Sources that are named through a link (--source ~/data): the kernel calls what is below them something else. What is changed there must be told by the name that the source has.
//
// The roots are looked at when something is changed outside of all of them, once; again after a second where there is such a source. Any thread; errno is left alone.
#pragma once

#include <cstddef>

#include "client_lib/preload/room.h"

namespace tierd::preload {

// Whether a source may be found through an entry of that name (any part of its root's names). Looks at no file.
bool IsPartOfRoot(const char* entry, std::size_t bytes);
// Such an entry was changed: before anything is served again, the roots are compared with the daemon's (HAZARDS 2.14).
void DoubtRoots();

// Whether the kernel's `name` of something is below a source; then it is made the one that begins as the source's root does.
bool NameInSource(client::PathText& name);

}  // namespace tierd::preload
