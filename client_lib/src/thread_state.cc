#include "client_lib/src/thread_state.h"

#include "client_lib/src/older_libc.h"

namespace tierd::client {
namespace {

constexpr char kUnknown = 0;

}  // namespace

__thread ThreadState thread_state;
constinit std::atomic<bool> foreign_threads{false};
constinit std::atomic<const char*> single_threaded{&kUnknown};

void FindSingleThreaded() {
  if (&::dlsym == nullptr) return;
  const auto* const found = static_cast<const char*>(::dlsym(RTLD_DEFAULT, "__libc_single_threaded"));
  if (found != nullptr) single_threaded.store(found, std::memory_order_relaxed);
}

}  // namespace tierd::client
