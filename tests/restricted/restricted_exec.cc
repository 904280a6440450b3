// restricted_exec COMMAND...: runs a command, and all it starts, in the poorest environment tierd promises to work in: io_uring refused by seccomp, 64 KiB
// of locked memory, 1,024 descriptors, no namespaces, no huge pages. The refusals are those that container runtimes and hardened kernels give.
// Exit: the command's; 125 when the environment could not be made.
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/memfd.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

constexpr int kCannot = 125;
constexpr rlim_t kDescriptors = 1024;
constexpr rlim_t kLockedBytes = 64 << 10;
#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;
#endif

// Root is not bound by some limits. What lets it pass them is taken from the bounding set: an exec then no longer grants it.
bool DropPrivileges() {
  for (const int capability : {CAP_IPC_LOCK, CAP_SYS_RESOURCE}) {
    if (::prctl(PR_CAPBSET_READ, capability) == 1 && ::prctl(PR_CAPBSET_DROP, capability) != 0 && errno != EPERM) return false;
  }
  return true;
}

bool SetLimit(int resource, rlim_t value) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return false;
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > value) limit.rlim_max = value;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0;
}

struct Refusal {
  const char* name;
  int error;
};

bool Refuse(scmp_filter_ctx filter, const char* name, int error) {
  const int number = seccomp_syscall_resolve_name(name);
  // A call this libseccomp does not know cannot be made by name either.
  return number == __NR_SCMP_ERROR || seccomp_rule_add(filter, SCMP_ACT_ERRNO(static_cast<unsigned>(error)), number, 0) == 0;
}

// Refuses `name` when any of the bits is set in argument `argument`.
bool RefuseBits(scmp_filter_ctx filter, const char* name, unsigned argument, unsigned long bits, int error) {
  for (unsigned long bit = 1; bit != 0 && bit <= bits; bit <<= 1) {
    if ((bits & bit) == 0) continue;
    const scmp_arg_cmp set = SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, bit, bit);
    if (seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(static_cast<unsigned>(error)), seccomp_syscall_resolve_name(name), 1, &set) != 0) return false;
  }
  return true;
}

bool RefuseAdvice(scmp_filter_ctx filter, unsigned long advice) {
  const scmp_arg_cmp equal = SCMP_CMP(2, SCMP_CMP_EQ, advice, 0);
  return seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EINVAL), seccomp_syscall_resolve_name("madvise"), 1, &equal) == 0;
}

bool InstallFilter() {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (filter == nullptr) return false;
  // Without privilege a filter needs no_new_privs; with it that bit would only take fusermount3's privilege away from the rig.
  bool ok = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, ::geteuid() == 0 ? 0 : 1) == 0;
  constexpr Refusal kRefusals[] = {{"io_uring_setup", EPERM}, {"io_uring_enter", EPERM}, {"io_uring_register", EPERM},
                                   // Its flags are in memory, where a filter cannot look: runtimes say "unknown", and callers use clone.
                                   {"clone3", ENOSYS}};
  for (const Refusal& refusal : kRefusals) ok = ok && Refuse(filter, refusal.name, refusal.error);
  // No new namespaces, also for root: so there is no private mount of a tmpfs with huge=always either.
  ok = ok && RefuseBits(filter, "unshare", 0, CLONE_NEWUSER | CLONE_NEWNS, EPERM);
  ok = ok && RefuseBits(filter, "clone", 0, CLONE_NEWUSER | CLONE_NEWNS, EPERM);
  // No 2 MiB pages: neither from the pool nor by advice.
  ok = ok && RefuseBits(filter, "memfd_create", 1, MFD_HUGETLB, EINVAL);
  ok = ok && RefuseBits(filter, "mmap", 3, MAP_HUGETLB, EINVAL);
  ok = ok && RefuseAdvice(filter, MADV_HUGEPAGE) && RefuseAdvice(filter, MADV_COLLAPSE);
  ok = ok && seccomp_load(filter) == 0;
  seccomp_release(filter);
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: restricted_exec COMMAND [ARGUMENT...]\n");
    return kCannot;
  }
  if (!DropPrivileges() || !SetLimit(RLIMIT_MEMLOCK, kLockedBytes) || !SetLimit(RLIMIT_NOFILE, kDescriptors) || !InstallFilter()) {
    std::fprintf(stderr, "restricted_exec: %s\n", std::strerror(errno));
    return kCannot;
  }
  ::setenv("TIERD_RESTRICTED", "1", 1);
  ::execvp(argv[1], argv + 1);
  std::fprintf(stderr, "restricted_exec: %s: %s\n", argv[1], std::strerror(errno));
  return 127;
}
