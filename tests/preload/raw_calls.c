/* Reads a file by system calls made by hand, as the Go runtime and static programs do: nobody sees them. Prints the size and a sum. usage: raw_calls FILE */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static long by_hand(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
#endif
}

int main(int argc, char **argv) {
  static unsigned char buffer[65536];
  struct stat st;
  unsigned long sum = 0;
  long got, fd = by_hand(SYS_openat, AT_FDCWD, (long)argv[argc - 1], O_RDONLY, 0);
  if (fd < 0 || by_hand(SYS_fstat, fd, (long)&st, 0, 0) != 0) return 1;
  while ((got = by_hand(SYS_read, fd, (long)buffer, sizeof buffer, 0)) > 0) {
    for (long i = 0; i < got; ++i) sum = sum * 31 + buffer[i];
  }
  printf("%ld %lu\n", (long)st.st_size, sum);
  return got != 0 || by_hand(SYS_close, fd, 0, 0, 0) != 0;
}
