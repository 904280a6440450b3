// The directory of the SSD tier: what it is on and how fast it is.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>

#include "tierctl/doctor/check.h"
#include "tierd/base/unique_fd.h"
#include "tierd/config/host.h"
#include "tierd/config/units.h"

namespace tierctl::doctor {
namespace {

using tierd::UniqueFd;
using tierd::config::HumanSize;
using Time = std::chrono::steady_clock;

constexpr std::size_t kBlock = 1 << 20;
constexpr std::size_t kSmallBlock = 4096;
constexpr std::size_t kFileBytes = 64 * kBlock;
constexpr double kStepSeconds = 0.25;  // per measurement: write, read, small reads

std::string NearestExisting(std::string path) {
  struct stat info {};
  while (path.size() > 1 && ::stat(path.c_str(), &info) != 0) path.resize(std::max<std::size_t>(path.rfind('/'), 1));
  return path;
}

// "1" for spinning disks, "0" for flash, "" if the kernel does not tell (overlay, virtual).
std::string Rotational(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "";
  const std::string device = "/sys/dev/block/" + std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
  std::string text;
  for (const char* queue : {"/queue/rotational", "/../queue/rotational"}) {
    std::ifstream file(device + queue);
    if (file >> text) return text;
  }
  return "";
}

struct Speed {
  double write_bytes_per_s = 0;
  double read_bytes_per_s = 0;
  double small_reads_per_s = 0;
  bool direct = false;
  int error = 0;
};

// Runs `step` on one block after another until the time is up; blocks per second, or -errno.
template <typename Step>
double Measure(Step step, std::size_t blocks) {
  const auto begin = Time::now();
  double seconds = 0;
  std::size_t done = 0;
  while (done < blocks && seconds < kStepSeconds) {
    if (!step(done)) return -errno;
    ++done;
    seconds = std::chrono::duration<double>(Time::now() - begin).count();
  }
  return static_cast<double>(done) / std::max(seconds, 1e-9);
}

// Into a nameless file: nothing is left whatever happens.
Speed MeasureDisk(const std::string& directory) {
  Speed speed;
  UniqueFd fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600));
  speed.direct = fd.valid();
  if (!fd.valid()) fd.Reset(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    speed.error = errno;
    return speed;
  }
  const std::unique_ptr<void, void (*)(void*)> buffer(std::aligned_alloc(kBlock, kBlock), std::free);
  std::memset(buffer.get(), 0x5a, kBlock);
  std::size_t written = 0;
  const double writes = Measure(
      [&](std::size_t i) {
        const bool ok = ::pwrite(fd.get(), buffer.get(), kBlock, static_cast<off_t>(i * kBlock)) == static_cast<ssize_t>(kBlock);
        written += ok ? 1 : 0;
        return ok;
      },
      kFileBytes / kBlock);
  if (writes < 0 || written == 0 || ::fdatasync(fd.get()) != 0) {
    speed.error = writes < 0 ? static_cast<int>(-writes) : errno;
    return speed;
  }
  const double reads = Measure([&](std::size_t i) { return ::pread(fd.get(), buffer.get(), kBlock, static_cast<off_t>(i % written * kBlock)) == static_cast<ssize_t>(kBlock); }, 100'000);
  std::mt19937 random(1);
  const auto pages = static_cast<std::uint32_t>(written * kBlock / kSmallBlock);
  speed.small_reads_per_s = Measure(
      [&](std::size_t) { return ::pread(fd.get(), buffer.get(), kSmallBlock, static_cast<off_t>(random() % pages * kSmallBlock)) == static_cast<ssize_t>(kSmallBlock); }, 1'000'000);
  speed.write_bytes_per_s = writes * kBlock;
  speed.read_bytes_per_s = reads * kBlock;
  return speed;
}

Check SpeedCheck(const std::string& directory) {
  Check check{"ssd.speed", Verdict::kOk, "", ""};
  const Speed speed = MeasureDisk(directory);
  if (speed.error != 0) {
    check.verdict = Verdict::kWarn;
    check.detail = directory + ": not measured: " + std::strerror(speed.error);
    check.remedy = "name a directory that can be written with --cache DIR";
    return check;
  }
  const auto per_s = [](double bytes) { return HumanSize(static_cast<std::uint64_t>(std::max(bytes, 0.0))) + "/s"; };
  check.detail = "one request at a time: writes " + per_s(speed.write_bytes_per_s) + ", reads " + per_s(speed.read_bytes_per_s) + ", " +
                 std::to_string(static_cast<long>(std::max(speed.small_reads_per_s, 0.0))) + " reads of 4 KiB/s" + (speed.direct ? " (O_DIRECT)" : " (buffered: no O_DIRECT here, figures are the page cache's)");
  if (speed.read_bytes_per_s < 100e6 || speed.small_reads_per_s < 1000) {
    check.verdict = Verdict::kWarn;
    check.detail += ": slower than an SSD";
    check.remedy = "put the cache on local flash: ssd.directory or --ssd DIR";
  } else if (!speed.direct) {
    check.verdict = Verdict::kWarn;
    check.remedy = "use ext4 or xfs for the cache: without O_DIRECT cached bytes are held twice in memory";
  }
  return check;
}

}  // namespace

std::vector<Check> Disk(const std::string& directory, bool measure) {
  std::vector<Check> checks;
  const tierd::config::CacheDirectory facts = tierd::config::ExamineCacheDirectory(directory);
  Check kind{"ssd.directory", Verdict::kOk, directory + ": " + HumanSize(facts.free_bytes) + " free of " + HumanSize(facts.total_bytes), ""};
  if (facts.held_bytes != 0) kind.detail += ", the cache holds " + HumanSize(facts.held_bytes);
  if (!facts.usable.ok()) {
    kind.verdict = Verdict::kFail;
    kind.detail = facts.usable.message();
    kind.remedy = "name a local directory of your own: ssd.directory = \"/local/disk/tierd\", or \"off\" to do without";
    return {kind};
  }
  const std::string existing = NearestExisting(directory);
  if (const std::string rotational = Rotational(existing); rotational == "1") {
    kind.verdict = Verdict::kWarn;
    kind.detail += ", on a spinning disk (or the device says so)";
    kind.remedy = "put the cache on local flash if there is any: ssd.directory or --ssd DIR";
  } else if (rotational == "0") {
    kind.detail += ", on flash";
  }
  checks.push_back(std::move(kind));
  if (measure) checks.push_back(SpeedCheck(existing));
  return checks;
}

}  // namespace tierctl::doctor
