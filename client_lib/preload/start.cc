// What this process is to us, decided once, before main.
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include <cstring>

#include "client_lib/preload/descriptors.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/next.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/writers.h"
#include "client_lib/src/process.h"
#include "client_lib/src/settings.h"

namespace tierd::preload {

constinit Process process;
__thread std::uint32_t vfork_depth __attribute__((tls_model("initial-exec"))) = 0;

namespace {

bool IsOn(const char* name) {
  const char* const value = ::getenv(name);
  return value != nullptr && value[0] != '\0' && std::strcmp(value, "0") != 0;
}

// Libraries that give descriptors to the kernel without our seeing it.
int LookAtLibrary(dl_phdr_info* info, size_t, void* found) {
  for (const char* name : {"liburing.so", "libcufile.so"}) {
    if (std::strstr(info->dlpi_name, name) != nullptr) *static_cast<bool*>(found) = true;
  }
  return 0;
}

void BeforeFork() {
  process.forking.fetch_add(1, std::memory_order_seq_cst);
  if (vfork_depth == 0) MaterialiseAll(Conversion::kFork);
}

void InParent() { process.forking.fetch_sub(1, std::memory_order_seq_cst); }

void InChild() {
  process.forking.store(0, std::memory_order_relaxed);
  ForgetThreads();
  ForgetCounts();
}

void ReadRoots() {
  // The same words as libtier reads: what is behind TIERD_PREFIX may use the cache.
  client::Settings settings;
  if (!client::ReadSettings(nullptr, settings)) return;
  std::memcpy(process.root_text, settings.prefix_text, sizeof process.root_text);
  process.roots.count = settings.prefixes.count;
  for (std::size_t i = 0; i < settings.prefixes.count; ++i) {
    process.roots.text[i] = process.root_text + (settings.prefixes.text[i] - settings.prefix_text);
    process.roots.bytes[i] = settings.prefixes.bytes[i];
  }
}

__attribute__((constructor(101))) void Start() {
  const client::KeepErrno keep;
  ResolveAllNext();
  // Nothing of the environment counts in a program that runs with more rights than its caller (FAULTS T13).
  if (::getauxval(AT_SECURE) != 0 || IsOn("TIERD_DISABLE")) return;
  ReadRoots();
  process.real_fds = IsOn("TIERD_REAL_FDS") || IsOn("TIERD_LOWEST_FD") || !MakePlaceholder();
  if (const char* report = ::getenv("TIERD_REPORT"); report != nullptr && report[0] == '/' && std::strlen(report) < sizeof process.report_path) {
    std::strcpy(process.report_path, report);
    process.report = process.report_path;
  }
  bool rings = false;
  ::dl_iterate_phdr(&LookAtLibrary, &rings);
  process.kernel_rings.store(rings, std::memory_order_relaxed);
  LookAtStandardDescriptors();
  ::pthread_atfork(nullptr, nullptr, &ResetHeap);   // before the core's own handlers
  process.client = &client::DefaultClient();        // registers those
  ::pthread_atfork(&BeforeFork, &InParent, &InChild);  // prepare handlers run last first: all is real before the core counts its leases
  process.active = true;
  AdoptWriters();
}

__attribute__((destructor)) void End() {
  if (!process.active) return;
  const client::KeepErrno keep;
  EndWriters();
  WriteReport();
}

}  // namespace

void LookAtStandardDescriptors() {
  bool free = false;
  for (int fd = 0; fd < 3; ++fd) free = free || raw::Call(SYS_fcntl, fd, F_GETFD) < 0;
  process.standard_free.store(free, std::memory_order_relaxed);
}

}  // namespace tierd::preload
