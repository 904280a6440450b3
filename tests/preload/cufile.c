/* What libcufile.so is to a program, without a GPU: it reads through the descriptor that it is given by a system call of its own. */
#include <stdint.h>

static long system_call(long number, long a, long b, long c) {
#if defined(__x86_64__)
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
#else
  return -1;
#endif
}

static uint32_t first;

uint64_t cuFileDriverOpen(void) { return 0; }
uint64_t cuFileHandleRegister(void **handle, void *descriptor) {
  *handle = &first;
  return system_call(0 /* read */, *(int *)descriptor, (long)&first, 4) == 4 ? 0 : 5005;
}
