// TIERD_CHECK: ends the daemon with file, line and condition when *our own* logic is wrong. Never for input, I/O or peers;
// never in client_lib (DESIGN: a training job must not die because of us).
#pragma once

namespace tierd {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}

#define TIERD_CHECK(condition)                                        \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::tierd::CheckFailed(__FILE__, __LINE__, #condition);           \
  } while (0)
