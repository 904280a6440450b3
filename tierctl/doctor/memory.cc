// Huge pages, limits, memory.
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "tierctl/doctor/check.h"
#include "tierd/config/units.h"
#include "tierd/ram/memory_pressure.h"
#include "tierd/ram/segment.h"

namespace tierctl::doctor {
namespace {

using tierd::abi::PageKind;
using tierd::config::HumanSize;

using tierd::ram::kHugePage;

std::string LimitText(rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit); }

// A segment of one huge page of that kind: "" if it can be had, else why not.
std::string WhyNot(PageKind kind, const std::string& sys_root, const tierd::Result<tierd::ram::PrivateTmpfs>& tmpfs) {
  tierd::ram::SegmentOptions options;
  options.force_kind = kind;
  options.shmem_enabled_path = sys_root + "/kernel/mm/transparent_hugepage/shmem_enabled";
  if (tmpfs.ok()) options.tmpfs = &*tmpfs;
  else options.no_tmpfs_reason = tmpfs.status().message();
  tierd::ram::SegmentFactory factory(options);
  const tierd::Result<tierd::ram::Segment> segment = factory.Create(kHugePage);
  return segment.ok() ? "" : segment.status().message();
}

}  // namespace

std::vector<Check> HugePages(const std::string& sys_root) {
  std::vector<Check> checks;
  const std::string pool = sys_root + "/kernel/mm/hugepages/hugepages-2048kB/";
  const std::string total = FirstLine(pool + "nr_hugepages");
  const std::string free = FirstLine(pool + "free_hugepages");
  const std::string shmem = FirstLine(sys_root + "/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::string facts = "hugetlb pool " + (total.empty() ? "none" : free + " of " + total + " free") + ", shmem_enabled " + (shmem.empty() ? "unknown" : shmem);
  Check pages{"memory.pages", Verdict::kOk, "", ""};
  std::string reasons;
  const tierd::Result<tierd::UniqueFd> user_namespace = tierd::ram::MakeUserNamespace();
  const auto tmpfs = tierd::ram::PrivateTmpfs::Create(user_namespace.ok() ? user_namespace->get() : -1);
  for (const auto& [kind, name] : {std::pair{PageKind::kHugetlb, "hugetlb"}, {PageKind::kTmpfsHuge, "a private tmpfs"}, {PageKind::kShmemHuge, "shmem"}}) {
    const std::string why = WhyNot(kind, sys_root, tmpfs);
    if (why.empty()) {
      pages.detail = std::string("2 MiB pages by ") + name + " (" + facts + ")";
      break;
    }
    reasons += (reasons.empty() ? "" : "; ") + std::string(name) + ": " + why;
  }
  if (pages.detail.empty()) {
    pages.verdict = Verdict::kWarn;
    pages.detail = "4 KiB pages only: the first touch in each process is 2 to 3 times slower (" + facts + "). " + reasons;
    pages.remedy = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or sysctl -w vm.nr_hugepages=N (2 MiB each), or allow user namespaces";
  }
  checks.push_back(std::move(pages));
  return checks;
}

Check FileDescriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  Check check{"limits.files", Verdict::kOk, "open files " + LimitText(limit.rlim_cur) + " (hard " + LimitText(limit.rlim_max) + ")", ""};
  if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < 4096) {
    check.verdict = Verdict::kWarn;
    check.detail += ": fewer clients and requests in flight";
    check.remedy = "ulimit -Hn 65536, or LimitNOFILE=65536 in the unit";
  }
  return check;
}

Check LockedMemory() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  Check check{"limits.memlock", Verdict::kOk, "", ""};
  check.detail = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : HumanSize(limit.rlim_cur);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < (64 << 10)) {
    check.verdict = Verdict::kWarn;
    check.detail += ": too little for the rings of io_uring on kernels before 5.12, where they count; nothing else is locked";
    check.remedy = "ulimit -l 8192, or LimitMEMLOCK=8M in the unit";
  } else {
    check.detail += " of locked memory";
  }
  return check;
}

Check MemoryLimit(std::uint64_t wanted_bytes, std::uint64_t min_available_bytes) {
  const tierd::ram::MemoryRoom room = tierd::ram::ReadMemoryRoom({});
  Check check{"memory.room", Verdict::kOk, "", ""};
  if (!room.known) {
    check.verdict = Verdict::kWarn;
    check.detail = "/proc/meminfo cannot be read: the RAM tier stays small";
    check.remedy = "mount /proc";
    return check;
  }
  check.detail = HumanSize(room.room_bytes) + " can be taken (bound by " + room.bound_by + ")";
  if (room.cgroup_limit_bytes != 0) check.detail += ", cgroup limit " + HumanSize(room.cgroup_limit_bytes) + " of which " + HumanSize(room.cgroup_used_bytes) + " used";
  check.detail += "; ram.capacity is " + HumanSize(wanted_bytes);
  if (wanted_bytes + min_available_bytes > room.room_bytes) {
    check.verdict = Verdict::kWarn;
    check.detail += ", more than fits now beside ram.min_available";
    check.remedy = "lower ram.capacity (or \"auto\"), or give the job more memory (sbatch --mem)";
  }
  return check;
}

}  // namespace tierctl::doctor
