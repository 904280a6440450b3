// The limit of descriptor numbers: the kernel puts no file at a number above it. Descriptors of ours that were to become real later could not, so they do before.
// The limit of the address space: what a program leaves itself is its own. What the cache has mapped by then is added.
#include <sys/resource.h>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/kept_mappings.h"
#include "client_lib/preload/materialise.h"
#include "client_lib/preload/raw.h"
#include "client_lib/src/shared_mapping.h"

using namespace tierd::preload;

TIERD_NEXT_CALL(int, setrlimit, SYS_setrlimit, int, const rlimit*)
TIERD_NEXT_CALL(int, prlimit, SYS_prlimit64, pid_t, int, const rlimit*, rlimit*)

namespace {

// Whether numbers that may be ours lie above that limit, and below the one that there is. In a vfork child, whose limits are its own, everything is real.
bool ExcludesOurs(int resource, const rlimit* limit) {
  if (resource != RLIMIT_NOFILE || limit == nullptr || limit->rlim_cur >= kTable || !Active()) return false;
  rlimit now{};
  return raw::Call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, raw::Address(&now)) == 0 && limit->rlim_cur < now.rlim_cur;
}

// Nothing is kept mapped that nobody uses.
rlimit WithOurs(const rlimit& wanted) {
  StopKeepingMappings();
  const rlim_t ours = tierd::client::SharedBytes();
  rlimit now{}, with = wanted;
  if (raw::Call(SYS_prlimit64, 0, RLIMIT_AS, 0, raw::Address(&now)) != 0) return wanted;
  // Not beyond what it may have: nobody but root raises that.
  if (with.rlim_max != RLIM_INFINITY && with.rlim_max <= now.rlim_max) with.rlim_max = ours < now.rlim_max - with.rlim_max ? with.rlim_max + ours : now.rlim_max;
  with.rlim_cur = ours < with.rlim_max - with.rlim_cur ? with.rlim_cur + ours : with.rlim_max;
  return with;
}

template <typename Set>
int SetLimit(int resource, const rlimit* limit, Set set) {
  if (resource == RLIMIT_AS && limit != nullptr && limit->rlim_cur != RLIM_INFINITY && limit->rlim_cur <= limit->rlim_max && Active()) {
    // Another library's setrlimit may come back to us: ours is added once.
    static __thread bool added __attribute__((tls_model("initial-exec"))) = false;
    if (added) return set(limit);
    const rlimit with = WithOurs(*limit);
    added = true;
    const int result = set(&with);
    added = false;
    return result;
  }
  if (!ExcludesOurs(resource, limit)) [[likely]] return set(limit);
  {
    const tierd::client::KeepErrno keep;
    process.forking.fetch_add(1, std::memory_order_seq_cst);  // nothing is opened as ours meanwhile
    MaterialiseAll(Conversion::kDup);
  }
  const int result = set(limit);
  if (result == 0) process.real_from_now.store(true, std::memory_order_seq_cst);
  process.forking.fetch_sub(1, std::memory_order_seq_cst);
  return result;
}

}  // namespace

TIERD_EXPORT(int, setrlimit, int resource, const rlimit* limit) {
  return SetLimit(resource, limit, [&](const rlimit* wanted) { return Next_setrlimit()(resource, wanted); });
}
TIERD_ALIAS(int, setrlimit64, setrlimit, int, const rlimit*)

TIERD_EXPORT(int, prlimit, pid_t pid, int resource, const rlimit* limit, rlimit* old) {
  const auto set = [&](const rlimit* wanted) { return Next_prlimit()(pid, resource, wanted, old); };
  const bool own = (resource == RLIMIT_NOFILE || resource == RLIMIT_AS) && (pid == 0 || pid == static_cast<pid_t>(raw::Call(SYS_getpid)));
  return own ? SetLimit(resource, limit, set) : set(limit);
}
TIERD_ALIAS(int, prlimit64, prlimit, pid_t, int, const rlimit*, rlimit*)
