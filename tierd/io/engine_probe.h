// Measures which engine reads a source faster, on a sample of its files.
//
// A blocking function for a worker thread, with engines and memory of its own: the loop is never involved. It reads each
// file at most once, decides nothing but the kind, and remembers nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tierd/io/io_engine.h"

namespace tierd::io {

struct EngineProbe {
  int root_fd = -1;                // O_PATH is enough; open until the function returns
  std::vector<std::string> paths;  // relative to root_fd; those beyond max_files are not used
  bool follow_symlinks = false;
  std::size_t max_files = 256;
  // Bytes read of each file at most. A multiple of 4096.
  std::size_t file_bytes = std::size_t{128} << 10;
  // For the whole measurement. A source that hangs ends it by this time, too (+ 0.4 s).
  int max_ms = 1000;
  // As the engine will be used. Files in flight at once: `workers`, but at most a quarter of the sample.
  EngineOptions engine;
};

struct EngineChoice {
  EngineKind kind = EngineKind::kThreads;
  double uring_per_second = 0;    // files; 0: not measured
  double threads_per_second = 0;
  std::string reason;             // one line for `doctor`: "io_uring 9,120 against threads 12,304 files/s"
};

// The thread pool is the answer when nothing can be measured (few files, errors, a hang) and when io_uring is not faster by a
// tenth: a request that hangs in the pool has a thread to itself, and nothing that the kernel shares.
EngineChoice ChooseEngine(const EngineProbe& probe);

}  // namespace tierd::io
