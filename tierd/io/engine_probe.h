// Measures which engine reads a local disk faster: scattered reads around the page cache of a file that is made for it and has no name.
//
// Blocks for some tens of milliseconds, on the thread that asks, with engines and memory of its own. It decides nothing but the kind, and remembers nothing.
#pragma once

#include <cstddef>
#include <string>

#include "tierd/io/io_engine.h"

namespace tierd::io {

struct EngineProbe {
  std::string directory;  // absolute, on the disk in question; its parent will do
  // Bytes of one read: a multiple of 4096.
  std::size_t read_bytes = std::size_t{16} << 10;
  // Of one turn of an engine; each has two. So many are also written, once.
  std::size_t reads = 128;
  // For all reads together. A disk that hangs while it reads ends the measurement by this time, too (+ 0.4 s).
  int max_ms = 400;
  // As the engine will be used. Reads in flight at once: `workers`.
  EngineOptions engine;
};

struct EngineChoice {
  EngineKind kind = EngineKind::kUring;
  double uring_per_second = 0;  // reads; 0: not measured
  double threads_per_second = 0;
  std::string reason;           // one line: "io_uring 91,200 against threads 62,304 reads/s"
};

// io_uring is the answer when nothing can be measured, and unless the thread pool is faster by half: for a read of a disk that needs no thread to wait, the pool costs twice
// the CPU time, and a busy machine mismeasures. The thread pool where there is no io_uring.
EngineChoice ChooseEngine(const EngineProbe& probe);

}  // namespace tierd::io
