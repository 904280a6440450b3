// LMDB's lock files. A reader that has one reads there which transaction is the latest, and finds its pages in the mapping that it made long before: the database is shared memory to it, and a
// snapshot of it would be wrong. Who opens a lock file for writing (every reader but those with `lock=False`) has the database beside it, open and mapped, from the source from then on.
// Any thread; errno is left alone.
#pragma once

namespace tierd::preload {

// That name was opened for writing: `lock.mdb` is the lock of `data.mdb` beside it, `NAME-lock` of `NAME`.
void NoteLockFile(int directory, const char* path);

}  // namespace tierd::preload
