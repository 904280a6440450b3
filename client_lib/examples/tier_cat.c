/*
 * tier_cat FILE...: writes files to stdout, and to stderr where each came from. Works with and without a running tierd.
 *   cc -o tier_cat tier_cat.c $(pkg-config --cflags --libs tier)
 */
#include <stdio.h>
#include <string.h>
#include <tier/tier.h>

static const char* const kOrigins[TIER_ORIGINS] = {"RAM", "SSD", "the source, through tierd", "the source"};

/* A file of any size, a piece at a time: tier_file_pin gives memory of the cache, nothing is copied. */
static int large(const char* path) {
  tier_file* file;
  int error = tier_open(NULL, path, &file, 0);
  if (error < 0) return error;
  int64_t at = 0;
  tier_view piece;
  while ((error = tier_file_pin(file, at, 1 << 20, &piece)) == 0 && piece.size > 0) {
    fwrite(piece.data, 1, piece.size, stdout);
    at += (int64_t)piece.size;
    tier_release(&piece);
  }
  tier_release(&piece); /* the empty one at the end */
  tier_close(file);
  return error;
}

static int small(const char* path) {
  tier_view view;
  int error = tier_get(NULL, path, &view, 0);
  if (error < 0) return error;
  fwrite(view.data, 1, view.size, stdout);
  fprintf(stderr, "%s: %zu bytes from %s\n", path, view.size, kOrigins[view.origin]);
  tier_release(&view);
  return 0;
}

int main(int argc, char** argv) {
  int failed = 0;
  for (int i = 1; i < argc; ++i) {
    tier_attr attr = {.size = sizeof attr};
    int error = tier_stat(NULL, argv[i], &attr, 0); /* from the index: no system call when it is known */
    if (error == 0) error = attr.bytes > (4u << 20) ? large(argv[i]) : small(argv[i]);
    if (error < 0) {
      fprintf(stderr, "%s: %s\n", argv[i], strerror(-error));
      failed = 1;
    }
  }
  return failed;
}
