// What this process is to us: whether we do anything at all, whether descriptors of ours may be made, what the environment asks for.
//
// Constant after Start but for the marked words. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "client_lib/src/process.h"

namespace tierd::preload {

struct Process {
  bool real_fds = false;     // TIERD_REAL_FDS, TIERD_LOWEST_FD
  const char* report = nullptr;  // TIERD_REPORT: file that the counts are appended to
  client::Client* client = nullptr;
  client::Prefixes roots;    // TIERD_PREFIX
  std::atomic<std::uint32_t> links{0};  // from outside, that are known (links.h); here, since every open looks at both
  char root_text[4096] = {};
  char report_path[4096] = {};
  // Changed later.
  std::atomic<bool> active{false};           // false: AT_SECURE, TIERD_DISABLE, no /proc, before Start; after chroot and its like
  std::atomic<bool> real_from_now{false};    // io_uring or cuFile in the process, whose descriptors escape us; two sets of descriptors
  std::atomic<std::uint32_t> forking{0};     // forks under way: nothing may be opened as ours, the child would share it
  std::atomic<std::uint32_t> looking{0};     // threads that may be in the dynamic linker for us, whose lock a child would find taken for good
  std::atomic<bool> is_child{false};         // of a fork: that lock may be held by a thread of the parent's, which is not here
  std::atomic<bool> standard_free{false};    // 0, 1 or 2 may be free: open for real, POSIX promises the lowest number
};

extern constinit Process process;

// A vfork child runs on our memory and on its parent's thread: it changes no table.
extern __thread std::uint32_t vfork_depth __attribute__((tls_model("initial-exec")));

inline bool Active() { return process.active.load(std::memory_order_relaxed) && vfork_depth == 0; }

// Whether libraries have been loaded since that give descriptors to the kernel behind our back. Nothing while a fork is under way; in its child only after a dlopen there, which
// needs the dynamic linker's lock by itself.
void LookAtLibraries();
// How many more opens look: a library is there some time after dlopen was called, or never.
extern "C" __attribute__((visibility("hidden"))) std::uint32_t tierd_libraries_to_look_for;

// Another thread makes a process, or everything is real from now on.
inline bool AllIsReal() { return process.forking.load(std::memory_order_relaxed) != 0 || process.real_from_now.load(std::memory_order_relaxed); }

// Whether a file may be opened as one of ours just now.
inline bool MayMakeDescriptors() {
  if (tierd_libraries_to_look_for != 0) [[unlikely]] LookAtLibraries();
  return !process.real_fds && !AllIsReal();
}

// `forking` is raised, and what is under way that a child must not inherit is over. The caller lowers it again.
void BeginForking();

// A descriptor 0..2 was closed: looks whether one of them is free.
void LookAtStandardDescriptors();

}  // namespace tierd::preload
