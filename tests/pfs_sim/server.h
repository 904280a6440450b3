// One running rig: mount, file system, receiving thread, control socket, until told to stop.
#pragma once

#include <cstdint>
#include <string>

#include "tests/pfs_sim/file_system.h"

namespace pfs_sim {

inline constexpr int kExitUnavailable = 77;  // FUSE cannot be used here: tests are skipped

struct ServerOptions {
  std::string backing;
  std::string mount;
  std::string control;   // socket path; empty: none
  std::string pid_file;  // empty: none
  FileSystemOptions fs;
  uint64_t latency_us = 0;
  uint64_t bandwidth = 0;
  uint32_t concurrency = 0;
  uint32_t read_ahead_kib = 1024;
  bool background = false;
  int die_with_parent = 0;  // pid of the parent to die with; 0: none
  int ready_fd = -1;        // gets "ok\n", "unavailable: WHY\n" or "error: WHY\n"
};

// Returns the process's exit code: 0 after an orderly end, 1 for a bad argument, kExitUnavailable when FUSE
// cannot be used here.
int Serve(ServerOptions options);

}  // namespace pfs_sim
