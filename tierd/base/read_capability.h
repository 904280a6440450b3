// Whether a process may read files whatever their modes say: by CAP_DAC_OVERRIDE or
// CAP_DAC_READ_SEARCH, which root has unless they were taken from it.
//
// Any thread; one system call, which touches no file.
#pragma once

#include <sys/types.h>

namespace tierd {

// By what is in effect now. `pid` 0: the calling thread. False where the process cannot be asked.
bool ReadsDespiteModes(pid_t pid);

}  // namespace tierd
