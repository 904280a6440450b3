/* Changes the files of a directory. Linked statically it is a program that no library sees.
 * usage: foreign_writer rewrite|replace|unlink|create DIRECTORY: DIRECTORY/file has 1,000 bytes */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
  char file[4096], other[4096], bytes[1000];
  if (argc != 3) return 2;
  const int replaces = strcmp(argv[1], "replace") == 0;
  snprintf(file, sizeof file, "%s/file", argv[2]);
  snprintf(other, sizeof other, "%s/made", argv[2]);
  if (strcmp(argv[1], "unlink") == 0) return unlink(file) != 0;
  memset(bytes, replaces ? 'c' : 'b', sizeof bytes);
  const int rewrites = strcmp(argv[1], "rewrite") == 0;
  const int fd = open(rewrites ? file : other, rewrites ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (fd < 0 || write(fd, bytes, sizeof bytes) != sizeof bytes || close(fd) != 0) return 1;
  return replaces && rename(other, file) != 0;
}
