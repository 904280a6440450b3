#include "client_lib/preload/counters.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "client_lib/preload/process.h"
#include "client_lib/preload/raw.h"
#include "client_lib/preload/real_reads.h"
#include "client_lib/preload/room.h"
#include "client_lib/src/accounting.h"
#include "client_lib/src/added_memory.h"
#include "client_lib/src/client.h"
#include "client_lib/src/file_limit.h"
#include "tier/tier.h"

namespace tierd::preload {

constinit Counters counters{};

namespace {

constinit tier_statistics reported{};  // what earlier lines of this process have said

// A line of JSON in a fixed buffer.
class Line {
 public:
  explicit Line(client::PathText& room) : text_(room.text) {}
  __attribute__((format(printf, 2, 3))) void Add(const char* format, ...) {
    if (!complete()) return;
    va_list arguments;
    va_start(arguments, format);
    const int n = ::vsnprintf(text_ + used_, kRoom - used_, format, arguments);
    va_end(arguments);
    used_ = n < 0 ? kRoom : used_ + static_cast<std::size_t>(n);
  }
  void Names(const char* key, const char* const* names, std::atomic<std::uint64_t>* values, std::size_t count) {
    Add(",\"%s\":{", key);
    bool first = true;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t value = values[i].exchange(0, std::memory_order_relaxed);
      if (value == 0) continue;
      Add("%s\"%s\":%llu", first ? "" : ",", names[i], static_cast<unsigned long long>(value));
      first = false;
    }
    Add("}");
  }
  bool complete() const { return used_ < kRoom; }
  const char* text() const { return text_; }
  std::size_t bytes() const { return used_; }

 private:
  static constexpr std::size_t kRoom = sizeof(client::PathText);
  char* const text_;
  std::size_t used_ = 0;
};

void AddReads(Line& line, const tier_statistics& now) {
  static constexpr const char* kOrigins[TIER_ORIGINS] = {"ram", "ssd", "source", "bypass"};
  for (const bool bytes : {false, true}) {
    line.Add(",\"%s\":{", bytes ? "bytes" : "reads");
    for (std::size_t i = 0; i < TIER_ORIGINS; ++i) {
      const std::uint64_t value = bytes ? now.bytes[i] - reported.bytes[i] : now.reads[i] - reported.reads[i];
      line.Add("%s\"%s\":%llu", i == 0 ? "" : ",", kOrigins[i], static_cast<unsigned long long>(value));
    }
    line.Add("}");
  }
  line.Add(",\"fallback\":{");
  bool first = true;
  for (std::uint32_t i = 1; i < TIER_FALLBACKS; ++i) {
    const std::uint64_t value = now.fallback[i] - reported.fallback[i];
    if (value == 0) continue;
    line.Add("%s\"%s\":%llu", first ? "" : ",", tier_fallback_name(i), static_cast<unsigned long long>(value));
    first = false;
  }
  line.Add("}");
}

void AddName(Line& line) {
  char name[64] = "";
  const int fd = raw::Open(AT_FDCWD, "/proc/self/comm", O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd < 0 ? 0 : raw::Pread(fd, name, sizeof name - 1, 0);
  if (fd >= 0) raw::Close(fd);
  std::size_t kept = 0;
  for (ssize_t i = 0; i < got; ++i) {
    if (name[i] > ' ' && name[i] != '"' && name[i] != '\\' && name[i] < 127) name[kept++] = name[i];
  }
  name[kept] = '\0';
  line.Add("{\"pid\":%ld,\"command\":\"%s\"", raw::Call(SYS_getpid), name);
}

void AddRealReads(Line& line) {
  line.Add(",\"real_reads\":{\"count\":%llu,\"bytes\":%llu}", static_cast<unsigned long long>(counters.real_reads.exchange(0, std::memory_order_relaxed)),
           static_cast<unsigned long long>(counters.real_bytes.exchange(0, std::memory_order_relaxed)));
}

// The page of the present session, or null.
abi::RealCounters* OfSession() {
  if (process.client == nullptr) return nullptr;
  client::Session* const session = process.client->session();
  return session != nullptr && session->serves() ? &session->page->real : nullptr;
}

void AddPlain(Line& line) {
  const struct {
    const char* name;
    std::atomic<std::uint64_t>& value;
  } plain[] = {{"opened", counters.opened}, {"stats", counters.stats}, {"listings", counters.listings}, {"links", counters.links}, {"maps", counters.maps},
               {"memory_copies", counters.memory_copies}, {"invalidations", counters.invalidations}, {"foreign_ends", counters.foreign_ends}, {"doubts", counters.doubts}};
  for (const auto& counter : plain)
    line.Add(",\"%s\":%llu", counter.name, static_cast<unsigned long long>(counter.value.exchange(0, std::memory_order_relaxed)));
}

void AddMemory(Line& line) {
  const client::AddedFacts added = client::AddedSoFar();
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  line.Add(",\"memory_added\":{\"peak\":%llu", number(added.peak));
  for (std::size_t i = 0; i < sizeof client::kAddedNames / sizeof *client::kAddedNames; ++i) {
    if (added.peak_of[i] != 0)
      line.Add(",\"%s\":%llu", client::kAddedNames[i], number(added.peak_of[i]));
  }
  line.Add("},\"memory_refused\":{\"budget\":%llu,\"kernel\":%llu}",
           number(added.refused_by_budget), number(added.refused_by_kernel));
}

// One write: lines of several processes do not mix. Under a limit of file sizes a line that does not fit is left out.
void Append(const Line& line) {
  if (!line.complete()) return;
  const int fd = raw::Open(AT_FDCWD, process.report, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  struct stat st;
  const bool fits = raw::Stat(fd, st) == 0 && (!S_ISREG(st.st_mode) || static_cast<std::uint64_t>(st.st_size) + line.bytes() <= client::FileSizeLimit());
  if (fits) (void)client::WriteWithinLimit(fd, line.text(), line.bytes());
  raw::Close(fd);
}

// Most processes of a job never come near a source.
enum class Doubts { kCount, kLeaveOut };
bool AnythingHappened(const tier_statistics& now, Doubts doubts) {
  std::uint64_t sum = 0;
  if (doubts == Doubts::kLeaveOut) {
    for (const auto* left_out : {&counters.foreign_ends, &counters.doubts}) sum -= left_out->load(std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < TIER_ORIGINS; ++i) sum += now.reads[i] - reported.reads[i];
  for (std::size_t i = 0; i < TIER_FALLBACKS; ++i) sum += now.fallback[i] - reported.fallback[i];
  auto* const all = reinterpret_cast<std::atomic<std::uint64_t>*>(&counters);
  for (std::size_t i = 0; i < sizeof counters / sizeof *all; ++i) sum += all[i].load(std::memory_order_relaxed);
  return sum != 0;
}

}  // namespace

void Count(RealOpen why) {
  Count(counters.real_open[static_cast<std::size_t>(why)]);
  if (abi::RealCounters* const page = OfSession(); page != nullptr) client::AddOwn(page->opens[static_cast<std::size_t>(why)], 1);
}

void Count(SourceUse why) {
  Count(counters.source_use[static_cast<std::size_t>(why)]);
  if (why != SourceUse::kMmap) return;
  if (abi::RealCounters* const page = OfSession(); page != nullptr) client::AddOwn(page->mappings, 1);
}

// Not in a process that the library keeps out of: seccomp's strict mode forbids the clock.
bool IsTimed() { return Active() && OfSession() != nullptr; }

void CountRealRead(std::uint64_t bytes, std::int64_t took_ns) {
  client::AddOwn(counters.real_reads, 1, counters.real_bytes, bytes);
  if (process.client == nullptr) return;
  abi::SessionCounters& all = process.client->Counters(process.client->session());
  client::CountRead(all, abi::Tier::kBypass, bytes);
  if (took_ns >= 0) client::CountLatency(all, abi::Tier::kBypass, took_ns);
  if (abi::RealCounters* const page = OfSession(); page != nullptr) client::AddOwn(page->reads, 1, page->bytes, bytes);
}

void CountSourceStream(int fd) {
  if (!raw::HasMark(fd, raw::kStreamOfSource)) return;
  const long at = raw::Call(SYS_lseek, fd, 0, SEEK_CUR);
  if (at > 0) CountRealRead(static_cast<std::uint64_t>(at), -1);
}

void ForgetCounts() {
  auto* const all = reinterpret_cast<std::atomic<std::uint64_t>*>(&counters);
  for (std::size_t i = 0; i < sizeof counters / sizeof *all; ++i) all[i].store(0, std::memory_order_relaxed);
  reported = {};
  client::ForgetAddedPeaks();
}

void WriteReport() {
  if (!process.active.load(std::memory_order_relaxed) || process.report == nullptr) return;
  tier_statistics now{};
  now.size = sizeof now;
  if (tier_stats(nullptr, &now) != 0 || !AnythingHappened(now, Doubts::kCount)) return;
  Room room;
  if (room.Get() == nullptr) return;
  Line line(*room.Get());
  AddName(line);
  if (!AnythingHappened(now, Doubts::kLeaveOut)) line.Add(",\"only_waited\":1");
  AddReads(line, now);
  AddPlain(line);
  AddMemory(line);
  line.Names("conversions", kConversionNames, counters.conversion, static_cast<std::size_t>(Conversion::kCount));
  line.Names("real_opens", abi::kRealOpenNames, counters.real_open, abi::kRealOpens);
  AddRealReads(line);
  line.Names("source_uses", kSourceUseNames, counters.source_use, static_cast<std::size_t>(SourceUse::kCount));
  line.Add("}\n");
  reported = now;
  Append(line);
}

void ReportOtherLibc() {
  if (process.report == nullptr) return;
  Room room;
  if (room.Get() == nullptr) return;
  Line line(*room.Get());
  AddName(line);
  line.Add(",\"other_libc\":1}\n");
  Append(line);
}

}  // namespace tierd::preload
