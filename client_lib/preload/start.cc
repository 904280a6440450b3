// What this process is to us, decided once, before main.
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/preload/counters.h"
#include "client_lib/preload/descriptors.h"
#include "client_lib/preload/foreign.h"
#include "client_lib/preload/kept_mappings.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/new_process.h"
#include "client_lib/preload/next.h"
#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/writers.h"
#include "client_lib/src/arena.h"
#include "client_lib/src/clock.h"
#include "client_lib/src/older_libc.h"
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

bool IsLoaded(const dl_phdr_info& info, const ElfW(Phdr)& part) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && part.p_vaddr >= segment.p_vaddr && part.p_vaddr - segment.p_vaddr + part.p_memsz <= segment.p_filesz) return true;
  }
  return false;
}

// A note that Go's linker leaves in whatever has its runtime, which makes system calls of its own.
bool HasGoRuntime(const dl_phdr_info& info) {
  constexpr ElfW(Word) kBuildId = 4;
  constexpr auto up = [](std::uint64_t bytes) { return (bytes + 3) / 4 * 4; };
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE || !IsLoaded(info, segment)) continue;
    const auto* const begin = reinterpret_cast<const char*>(info.dlpi_addr + segment.p_vaddr);
    ElfW(Nhdr) note;
    for (std::uint64_t at = 0; at + sizeof note <= segment.p_memsz; at += sizeof note + up(note.n_namesz) + up(note.n_descsz)) {
      std::memcpy(&note, begin + at, sizeof note);
      if (note.n_type == kBuildId && note.n_namesz == 4 && at + sizeof note + 4 <= segment.p_memsz && std::memcmp(begin + at + sizeof note, "Go\0", 4) == 0) return true;
    }
  }
  return false;
}

// Libraries that give descriptors to the kernel without our seeing it. (cuFile is loaded by every PyTorch with CUDA, and hardly ever used: its entrances are enough.)
int LookAtLibrary(dl_phdr_info* info, size_t, void*) {
  bool found = HasGoRuntime(*info);
  for (const char* name : {"liburing.so", "libaio.so"}) found = found || std::strstr(info->dlpi_name, name) != nullptr;
  if (found) process.real_from_now.store(true, std::memory_order_seq_cst);
  return found ? 1 : 0;
}

// How often a library has been loaded so far; of the first one only.
int CountLibraries(dl_phdr_info* info, size_t, void* count) {
  *static_cast<unsigned long long*>(count) = info->dlpi_adds;
  return 1;
}
constinit std::atomic<unsigned long long> libraries_seen{0};
void ListLibraries() {
  if (tierd_libraries_to_look_for != 0) --tierd_libraries_to_look_for;  // a count too many or too few is no matter
  unsigned long long count = 0;
  ::dl_iterate_phdr(&CountLibraries, &count);
  if (libraries_seen.exchange(count, std::memory_order_acq_rel) != count) ::dl_iterate_phdr(&LookAtLibrary, nullptr);
}

void BeforeFork() {
  BeginForking();
  if (vfork_depth == 0) MaterialiseAll(Conversion::kFork);
}

void InParent() { process.forking.fetch_sub(1, std::memory_order_seq_cst); }

void InChild() {
  process.forking.store(0, std::memory_order_relaxed);
  BeginInChild();
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

// What a change concerns is known by the kernel's names alone: without /proc nothing is certain.
bool NamesCanBeFound() { return raw::Call(SYS_faccessat, AT_FDCWD, raw::Address("/proc/self/fd"), 1 /* X_OK */) == 0; }

// musl and others load this library, too: what it relies on inside libc is glibc's alone.
bool LibcIsGlibc() {
  char version[64] = "";
  return ::confstr(_CS_GNU_LIBC_VERSION, version, sizeof version) > 0 && std::strncmp(version, "glibc ", 6) == 0;
}

void ReadReportPath() {
  const char* const report = ::getenv("TIERD_REPORT");
  if (report == nullptr || report[0] != '/' || std::strlen(report) >= sizeof process.report_path) return;
  std::strcpy(process.report_path, report);
  process.report = process.report_path;
}

__attribute__((constructor(101))) void Start(int, char** argv, char**) {
  const client::KeepErrno keep;
  if (!LibcIsGlibc()) {  // passes no argv, either
    if (::getauxval(AT_SECURE) != 0 || IsOn("TIERD_DISABLE")) return;
    ReadReportPath();
    ReportOtherLibc();
    return;
  }
  ResolveAllNext();
  // Nothing of the environment counts in a program that runs with more rights than its caller (FAULTS T13).
  if (::getauxval(AT_SECURE) != 0 || IsOn("TIERD_DISABLE") || !NamesCanBeFound()) return;
  NoteMainStack(argv);
  ReadRoots();
  process.real_fds = IsOn("TIERD_REAL_FDS") || IsOn("TIERD_LOWEST_FD") || !MakePlaceholder();
  ReadReportPath();
  LookAtLibraries();
  LookAtStandardDescriptors();
  StartKeepingMappings();
  client::Arena::CallBeforeRetiring(&DropKeptMappings);
  process.client = &client::DefaultClient();           // registers the core's own handlers
  client::CallAtFork(&BeforeFork, &InParent, &InChild);  // prepare handlers run last first: all is real before the core counts its leases
  process.active.store(true, std::memory_order_release);
  AdoptWriters();
}

__attribute__((destructor)) void End() {
  if (!Active()) return;
  const client::KeepErrno keep;
  EndWriters(Streams::kFlush);
  WriteReport();
}

}  // namespace

extern "C" {
std::uint32_t tierd_libraries_to_look_for = 0;
}

void BeginInChild() {
  process.looking.store(0, std::memory_order_relaxed);
  process.is_child.store(true, std::memory_order_relaxed);
  tierd_libraries_to_look_for = 0;
  ForgetThreads();
  ForgetRooms();
  ForgetCounts();
}

void LookAtLibraries() {
  if (process.is_child.load(std::memory_order_relaxed) && tierd_libraries_to_look_for == 0) return;
  const bool before = process.real_from_now.load(std::memory_order_relaxed);
  {
    const raw::NoSignals no_signals;  // who jumps out of a handler must not leave the dynamic linker's lock behind
    process.looking.fetch_add(1, std::memory_order_seq_cst);
    if (process.forking.load(std::memory_order_seq_cst) == 0) ListLibraries();
    process.looking.fetch_sub(1, std::memory_order_seq_cst);
  }
  if (!before && process.real_from_now.load(std::memory_order_relaxed)) MaterialiseAll(Conversion::kRings);
}

void BeginForking() {
  constexpr std::int64_t kLongestWaitNs = 1'000'000'000;  // a program may have forked with the dynamic linker's lock in its hands
  if (tierd_libraries_to_look_for != 0) LookAtLibraries();  // the child will not
  process.forking.fetch_add(1, std::memory_order_seq_cst);
  ShareForeign();
  const std::int64_t began_ns = client::CoarseNs();
  while (process.looking.load(std::memory_order_seq_cst) != 0 && client::CoarseNs() - began_ns < kLongestWaitNs) raw::Yield();
}

void LookAtStandardDescriptors() {
  bool free = false;
  for (int fd = 0; fd < 3; ++fd) free = free || raw::Call(SYS_fcntl, fd, F_GETFD) < 0;
  process.standard_free.store(free, std::memory_order_relaxed);
}

}  // namespace tierd::preload
