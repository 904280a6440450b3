#include "tierd/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tierd {
void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "tierd: check failed at %s:%d: %s\n", file, line, condition);
  std::abort();
}
}  // namespace tierd
