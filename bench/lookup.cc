// A3: what a hit costs that copies nothing: tier_get + tier_release of absolute paths, and that it makes no system call. Files have a deadline, which each hit looks at.
//
// Files are asked for in random order; the paths lie in memory in the order they are used, so that reading a path is no cache miss of ours.
// Each operation is timed by itself with the time stamp counter; the counter's own cost (median of empty pairs) is subtracted and stated.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tier/tier.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "bench/harness.h"
#include "bench/sides.h"
#include "client_lib/abi/path_hash.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace {

using namespace bench;  // NOLINT: a program of one file

constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kLine = 64;
constexpr std::size_t kFileBytes = 512;

#if defined(__x86_64__)
// Ordered on both sides: nothing before it is counted, nothing behind it has begun.
std::uint64_t Ticks() {
  _mm_lfence();
  const std::uint64_t ticks = __rdtsc();
  _mm_lfence();
  return ticks;
}
#else
std::uint64_t Ticks() { return static_cast<std::uint64_t>(Now() * 1e9); }
#endif

double TicksPerNs() {
  static const double rate = [] {
    const double from = Now();
    const std::uint64_t ticks = Ticks();
    while (Now() < from + 0.05) {
    }
    return static_cast<double>(Ticks() - ticks) / ((Now() - from) * 1e9);
  }();
  return rate;
}

// The median of what a clock gave that goes in steps (10 ns on some machines): within the step that it falls into by its rank, as of grouped data.
double MedianTicks(std::vector<std::uint32_t> ticks) {
  std::sort(ticks.begin(), ticks.end());
  const std::uint32_t middle = ticks[ticks.size() / 2];
  const auto [first, last] = std::equal_range(ticks.begin(), ticks.end(), middle);
  std::uint32_t step = last == ticks.end() ? 1 : *last - middle;
  if (first != ticks.begin()) step = std::min(step, middle - *(first - 1));
  const double rank = static_cast<double>(ticks.size()) / 2 - static_cast<double>(first - ticks.begin());
  return middle + step * (rank / static_cast<double>(last - first) - 0.5);
}

double TimerNs() {
  std::vector<std::uint32_t> empty(100'000);
  for (std::uint32_t& ticks : empty) {
    const std::uint64_t from = Ticks();
    ticks = static_cast<std::uint32_t>(Ticks() - from);
  }
  return MedianTicks(std::move(empty)) / TicksPerNs();
}

// All paths in one block, in the order of use.
struct PathBlock {
  std::vector<char> text;
  std::vector<std::uint32_t> starts;
  PathBlock(const std::vector<std::string>& paths, std::uint64_t seed) {
    for (const std::uint32_t i : Permutation(paths.size(), seed)) {
      starts.push_back(static_cast<std::uint32_t>(text.size()));
      text.insert(text.end(), paths[i].c_str(), paths[i].c_str() + paths[i].size() + 1);
    }
  }
  const char* operator[](std::size_t i) const { return text.data() + starts[i]; }
  std::size_t size() const { return starts.size(); }
};

// The median of one pass over up to a million paths, without the timer (MedianTicks). Negative when something was no hit.
double PassNs(const PathBlock& paths, bool touch, double timer_ns) {
  std::vector<std::uint32_t> ticks(paths.size());
  unsigned sum = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    tier_view view;
    const std::uint64_t from = Ticks();
    if (tier_get(nullptr, paths[i], &view, TIER_NOWAIT) != 0) return -1;
    if (touch) sum += *static_cast<const volatile unsigned char*>(view.data);
    tier_release(&view);
    ticks[i] = static_cast<std::uint32_t>(Ticks() - from);
  }
  if (sum == 1) Note("");  // keeps the touch
  return MedianTicks(std::move(ticks)) / TicksPerNs() - timer_ns;
}

// Memory of at least so many bytes, each of them 1, in pages of 2 MiB or of 4 KiB.
class HugeRoom {
 public:
  HugeRoom(std::size_t bytes, bool huge) : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage), room_(::mmap(nullptr, bytes_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (room_ == MAP_FAILED) return;
    ::madvise(data(), bytes_, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(data(), 1, bytes_);
  }
  ~HugeRoom() {
    if (room_ != MAP_FAILED) ::munmap(room_, bytes_ + kHugePage);
  }
  HugeRoom(const HugeRoom&) = delete;
  HugeRoom& operator=(const HugeRoom&) = delete;
  char* data() const { return room_ == MAP_FAILED ? nullptr : static_cast<char*>(room_) + (kHugePage - reinterpret_cast<std::uintptr_t>(room_) % kHugePage) % kHugePage; }
  std::size_t bytes() const { return bytes_; }

 private:
  const std::size_t bytes_;
  void* const room_;
};

// What the machine allows: in the same order, one line of a table as large as the index of so many files, whose place is known; 2 MiB pages, or 4 KiB.
double BareNs(const PathBlock& paths, bool huge, double timer_ns) {
  const HugeRoom table(paths.size() * 2 * kLine, huge);
  if (table.data() == nullptr) return -1;
  const std::vector<std::uint32_t> lines = Permutation(table.bytes() / kLine, 7);
  std::vector<std::uint32_t> ticks(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const char* const line = table.data() + lines[i] * kLine;
    const std::uint64_t from = Ticks();
    if (std::strlen(paths[i]) == 0 || *static_cast<const volatile char*>(line) == 0) break;  // the text of the path is read as we read it
    ticks[i] = static_cast<std::uint32_t>(Ticks() - from);
  }
  return MedianTicks(std::move(ticks)) / TicksPerNs() - timer_ns;
}

// What no hit can leave out, on the same line in the same order: hash and first look at the text of the path, the slot's line, the clock, an exchange that is a full fence (the lease), a store
// that gives it back, and three counts that threads share (ring, reads, bytes). Not in it: everything that looks whether all this holds. `file_bytes` is not 0: and the first byte of
// one of as many files of so many bytes, which the line says the place of and which is asked for as soon as it does.
double StepsNs(const PathBlock& paths, double timer_ns, std::size_t file_bytes) {
  const HugeRoom slots(paths.size() * 2 * kLine, true), contents(std::max<std::size_t>(1, paths.size() * file_bytes), true);
  if (slots.data() == nullptr || contents.data() == nullptr) return -1;
  char* const table = slots.data();
  const std::vector<std::uint32_t> places = Permutation(paths.size(), 8);
  for (std::size_t i = 0; i < slots.bytes() / kLine; ++i) {
    const std::uint64_t place = 1 + std::uint64_t{places[i % places.size()]} * file_bytes;
    std::memcpy(table + i * kLine, &place, sizeof place);
  }
  std::uint8_t secret[tierd::abi::kHashSecretBytes];
  const std::uint8_t key[32] = {7};
  tierd::abi::DeriveHashSecret(key, secret);
  struct alignas(kLine) Shared {
    std::atomic<std::uint64_t> lease{0}, head{0}, reads{0}, total{0};
  };
  static Shared shared;
  std::vector<std::uint32_t> ticks(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::uint64_t from = Ticks();
    const std::size_t length = std::strlen(paths[i]);
    const tierd::abi::FileKey where = tierd::abi::HashPath(secret, 1, paths[i], length);
    const char* const line = table + where.lo % (slots.bytes() / kLine) * kLine;
    __builtin_prefetch(line);
    timespec now;
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    const std::uint64_t place = *reinterpret_cast<const volatile std::uint64_t*>(line);
    if (place == 0) break;
    const char* const byte = contents.data() + place - 1;
    if (file_bytes != 0) __builtin_prefetch(byte);
    std::uint64_t free_slot = 0;
    if (!shared.lease.compare_exchange_strong(free_slot, where.hi | 1)) break;
    if (*reinterpret_cast<const volatile std::uint64_t*>(line) != place) break;
    if (file_bytes != 0 && *static_cast<const volatile char*>(byte) == 0) break;
    shared.head.fetch_add(1, std::memory_order_acq_rel);
    shared.reads.fetch_add(1, std::memory_order_relaxed);
    shared.total.fetch_add(static_cast<std::uint64_t>(now.tv_nsec), std::memory_order_relaxed);
    shared.lease.store(0, std::memory_order_release);
    ticks[i] = static_cast<std::uint32_t>(Ticks() - from);
  }
  return MedianTicks(std::move(ticks)) / TicksPerNs() - timer_ns;
}

// True if a million hits make no system call: in a child that any system call but exit_group kills.
bool NoSystemCalls(const PathBlock& paths) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    tier_view view;
    for (std::size_t i = 0; i < paths.size(); ++i) {  // opens the child's session, maps what it needs
      if (tier_get(nullptr, paths[i], &view, 0) == 0) tier_release(&view);
    }
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const sock_fprog program{.len = sizeof filter / sizeof filter[0], .filter = filter};
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(2);
    int bad = 0;
    for (std::size_t i = 0; i < 1'000'000; ++i) {
      if (tier_get(nullptr, paths[i % paths.size()], &view, TIER_NOWAIT) == 0) {
        tier_release(&view);
      } else {
        bad = 1;
      }
    }
    ::_exit(bad);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status == 0;
}

void MeasureCount(Bench& bench, const std::string& name, std::uint64_t files, double bar, const std::string& ram) {
  const std::string id = "A3." + name;
  const pfs_sim::TreeOptions tree{.files = files, .dirs = files / 1000, .size = {.mean = double{kFileBytes}}, .seed = 3};
  const std::string root = MakeTreeIn(bench, "lookup-" + name, tree);
  const auto daemon = root.empty() ? nullptr : Daemon::Start(bench, {.source = root, .ram = ram, .more = {"--set", "source.ttl=24h"}});
  if (daemon == nullptr) return bench.Fail(id + ": no daemon");
  ::setenv("TIERD_SOCKET", daemon->socket().c_str(), 1);
  const std::vector<std::string> paths = TreePaths(root, tree);
  if (!WarmAndVerify(paths, root, tree)) return bench.Fail(id + ": not all files are in RAM");
  bench.SetPages(daemon->pages());
  const double timer = TimerNs();
  const PathBlock block(paths, 1);
  tier_view view;
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (tier_get(nullptr, block[i], &view, 0) == 0) tier_release(&view);
  }
  Samples plain;
  Samples touching;
  Samples bare_huge;
  Samples bare_small;
  Samples steps;
  Samples steps_to_byte;
  for (int round = 0; round < bench.rounds(7); ++round) {
    const double one = PassNs(block, false, timer);
    const double two = PassNs(block, true, timer);
    if (one < 0 || two < 0) return bench.Fail(id + ": a file was no hit");
    plain.values.push_back(one);
    touching.values.push_back(two);
    bare_huge.values.push_back(BareNs(block, true, timer));
    bare_small.values.push_back(BareNs(block, false, timer));
    steps.values.push_back(StepsNs(block, timer, 0));
    steps_to_byte.values.push_back(StepsNs(block, timer, kFileBytes));
  }
  char note[256];
  std::snprintf(note, sizeof note, "timer %.1f ns, subtracted; bare strlen + one line of such a table %.0f ns (2 MiB pages), %.0f (4 KiB); with hash, clock, fence and three shared counts %.0f; and the byte %.0f",
                timer, bare_huge.median(), bare_small.median(), steps.median(), steps_to_byte.median());
  bench.Emit(ValueRow({id, "get + release, p50, " + name + " cached files", "ns", note}, plain, Bar::kAtMost, bar));
  if (files == 1'000'000) {
    bench.Emit(ValueRow({id + ".byte", "get + first byte + release, p50, 1M cached files", "ns", note}, touching, Bar::kAtMost, 450));
  } else {
    const Samples calls{{NoSystemCalls(block) ? 0.0 : 1.0}};
    bench.Emit(ValueRow({"A3.syscalls", "system calls in 10^6 hits (0: none; 1: at least one)", "calls", "under seccomp"}, calls, Bar::kAtMost, 0));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench(argc, argv);
  if (bench.WantsAny({"A3.10k", "A3.syscalls"})) InChild(bench, [&] { MeasureCount(bench, "10k", 10'000, 60, "256 MiB"); });
  if (bench.Wants("A3.1M")) InChild(bench, [&] { MeasureCount(bench, "1M", 1'000'000, 250, "2 GiB"); });
  return bench.Finish();
}
