// prctl: a filter of system calls ends the process, or refuses it, at calls that the program knows nothing of: our socket's, /proc's, a report's.
#include <stdarg.h>
#include <sys/prctl.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/leaving.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(int, prctl, SYS_prctl, int, ...)

TIERD_EXPORT(int, prctl, int option, ...) {
  va_list list;
  va_start(list, option);
  unsigned long more[4];
  for (unsigned long& argument : more) argument = va_arg(list, unsigned long);
  va_end(list);
  const auto change = [&] { return Next_prctl()(option, more[0], more[1], more[2], more[3]); };
  return option == PR_SET_SECCOMP ? Leave(change) : change();
}
