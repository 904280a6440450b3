// Streams over descriptors of ours (calls_stdio.cc), and how one becomes a stream of libc's own when it has to do what only those can: wide characters, freopen.
// A stream belongs to the thread that holds its lock, as in libc.
#pragma once

#include <stdio.h>

namespace tierd::preload {

void NoteCookieStream(int fd, FILE* stream);  // null: it is closed
bool IsCookieStream(FILE* stream);
// In place, at its position; its descriptor becomes real. Nothing if it is libc's.
void MakeLibcStream(FILE* stream);

}  // namespace tierd::preload
