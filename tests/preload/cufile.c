/* What libcufile.so is to a program, without a GPU: it reads through the descriptor that it is given by a system call of its own. */
#include <stdint.h>

#include "tests/preload/by_hand.h"

static uint32_t first;

uint64_t cuFileDriverOpen(void) { return 0; }
uint64_t cuFileHandleRegister(void **handle, void *descriptor) {
  *handle = &first;
  return by_hand(SYS_read, *(int *)descriptor, (long)&first, 4, 0, 0, 0) == 4 ? 0 : 5005;
}
