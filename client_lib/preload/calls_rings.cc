// The entrances to io_uring, kernel aio and cuFile: libraries that give descriptors to the kernel by system calls of their own. Whoever enters has real descriptors from
// then on. Such a library may be loaded late, by an extension module: then it is not behind us in the order of symbols, and is found by its name.
#include <dlfcn.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/find_symbol.h"
#include "client_lib/preload/materialise.h"

using namespace tierd::preload;

namespace {

void* Behind(const char* symbol, const char* library) {
  if (void* const next = LookUp(RTLD_NEXT, symbol); next != nullptr) return next;
  void* const loaded = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return loaded != nullptr ? LookUp(loaded, symbol) : nullptr;
}

void* Enter(const char* symbol, const char* library) {
  if (Active()) {
    const tierd::client::KeepErrno keep;
    process.real_from_now.store(true, std::memory_order_seq_cst);
    MaterialiseAll(Conversion::kRings);
  }
  return Behind(symbol, library);
}

template <typename... Arguments>
int Call(const char* symbol, const char* library, int missing, Arguments... arguments) {
  void* const next = Enter(symbol, library);
  return next != nullptr ? reinterpret_cast<int (*)(Arguments...)>(next)(arguments...) : missing;
}

constexpr const char* kUring = "liburing.so.2";
constexpr const char* kAio = "libaio.so.1";
constexpr const char* kCuFile = "libcufile.so.0";

}  // namespace

TIERD_EXPORT(int, io_uring_queue_init, unsigned entries, void* ring, unsigned flags) { return Call("io_uring_queue_init", kUring, -ENOSYS, entries, ring, flags); }
TIERD_EXPORT(int, io_uring_queue_init_params, unsigned entries, void* ring, void* params) {
  return Call("io_uring_queue_init_params", kUring, -ENOSYS, entries, ring, params);
}
TIERD_EXPORT(int, io_uring_queue_init_mem, unsigned entries, void* ring, void* params, void* memory, size_t bytes) {
  return Call("io_uring_queue_init_mem", kUring, -ENOSYS, entries, ring, params, memory, bytes);
}
TIERD_EXPORT(int, io_uring_setup, unsigned entries, void* params) { return Call("io_uring_setup", kUring, -ENOSYS, entries, params); }
TIERD_EXPORT(int, io_setup, int events, void* context) { return Call("io_setup", kAio, -ENOSYS, events, context); }
TIERD_EXPORT(int, io_queue_init, int events, void* context) { return Call("io_queue_init", kAio, -ENOSYS, events, context); }

// CUfileError_t: two 32-bit words in one register. 5001: the driver is not there.
constexpr std::uint64_t kNoCuFile = 5001;
TIERD_EXPORT(std::uint64_t, cuFileDriverOpen, void) {
  void* const next = Enter("cuFileDriverOpen", kCuFile);
  return next != nullptr ? reinterpret_cast<std::uint64_t (*)()>(next)() : kNoCuFile;
}
TIERD_EXPORT(std::uint64_t, cuFileHandleRegister, void* handle, void* description) {
  void* const next = Enter("cuFileHandleRegister", kCuFile);
  return next != nullptr ? reinterpret_cast<std::uint64_t (*)(void*, void*)>(next)(handle, description) : kNoCuFile;
}
