// Turns a descriptor of ours, in place and at its offset, into a real one of the source file, or of a sealed copy in memory when the file is gone or another by
// now: for everything that the wrappers cannot do on a placeholder. Slower afterwards, never wrong. errno is left alone. Any thread.
#pragma once

#include <errno.h>

#include "client_lib/preload/descriptors.h"

namespace tierd::preload {

// All numbers of what `fd` is; nothing if it is not ours. False: neither the file nor memory was to be had: the descriptor stays ours.
bool Materialise(int fd, Conversion why);
// The same with the file as it is now, whatever its version, if it is still that file: else it stays ours.
bool MaterialiseAsIs(int fd, Conversion why);
// Sets a few numbers aside for conversions, at the first descriptor of ours: later the process may have used up all.
void KeepReserve();
// `open` once more with a number of those, when there is none left (-EMFILE).
bool SpendReserve();
// After something else than a conversion, which does so itself, may have spent one.
void RefillReserve();
template <typename Open>
int WithReserve(Open open) {
  for (;;) {
    const int fd = open();
    if (fd != -EMFILE || !SpendReserve()) return fd;
  }
}
// The process has none left: gives it one that the library holds. First a placeholder that is kept
// for the next file, then, when all that is open has become real, one of the reserve, and last the
// placeholder that others are made of. False: there is none. errno is left alone.
bool GiveNumbersBack();
// Every descriptor of ours in this process: before anything that gives descriptors to others. Before names or rights change (kChanged) the directories that are listed are opened, too.
void MaterialiseAll(Conversion why);
// The descriptors of that file, copies in memory too, and its mappings (mappings.h), as it is by now or is about to be: what this process changes itself, it sees at once, whichever descriptor it reads by.
// `at`: one of that file, where a path may not lead to it any more; -1: none. Nothing while none of ours is open or mapped. Inodes of several sources may be of one number: one too many is only slower.
void MaterialiseFile(std::uint64_t inode, int at = -1);
// Those whose path is below that directory, which is about to get another name: it leads to them no more.
void MaterialiseBelow(const char* directory);
// Those that an exec leaves open.
void MaterialiseInherited(Conversion why);

}  // namespace tierd::preload
