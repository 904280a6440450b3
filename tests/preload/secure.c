/* Linked with the preload library: says which number a cached file gets, and whether this program runs with more rights than its caller. usage: secure FILE */
#include <fcntl.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(int argc, char **argv) {
  char byte = 0;
  int fd = open(argv[argc - 1], O_RDONLY);
  int good = fd >= 0 && read(fd, &byte, 1) == 1;
  printf("%d %lu\n", good ? fd : -1, getauxval(AT_SECURE));
  return !good;
}
