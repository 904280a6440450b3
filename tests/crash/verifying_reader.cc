#include "tests/crash/verifying_reader.h"

#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "tests/e2e/daemon_process.h"

namespace tierd::e2e {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr int kHotFiles = 60;
constexpr std::int64_t kSlowNs = 1500 * kMs;
// A client looks for a new daemon every 5 s, a fresh one at once. Lives of daemons are shorter here: who reads the source changes its client.
constexpr std::int64_t kLookAgainNs = 30 * kMs;

std::int64_t NowNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

std::size_t BytesOf(int file) { return 32'000 + static_cast<std::size_t>(file) * 311; }

// How late this process was served by its machine in sum: a thread that sleeps for a moment again and again, and looks when it is woken. What a machine does not
// do for anybody (a virtual one that stands still) is not what a slow read is looked for.
class Lateness {
 public:
  Lateness() {
    std::thread([this] {
      for (std::int64_t before = NowNs();;) {
        ::usleep(kMomentNs / 1000);
        const std::int64_t now = NowNs();
        sum_ns_ += now - before - kMomentNs;
        before = now;
      }
    }).detach();  // until the process ends
  }
  std::int64_t ns() const { return sum_ns_; }

 private:
  static constexpr std::int64_t kMomentNs = 10 * kMs;
  std::atomic<std::int64_t> sum_ns_ = 0;
};

class Reader {
 public:
  Reader(const std::string& source, const std::string& socket, Tally* tally, unsigned number)
      : source_(source), socket_(socket), tally_(*tally), number_(number), random_(number + 1) {}

  void Run() {
    Connect();
    while (!tally_.stop) {
      // Some files are read often, so that RAM serves them soon after each restart; of the others some are dropped first, so that the source is read.
      const bool hot = random_() % 10 < 5;
      const int file = static_cast<int>(hot ? random_() % kHotFiles : kHotFiles + random_() % (kCrashFiles - kHotFiles));
      const auto dice = random_() % 1000;
      if (!hot && dice < 250) Drop(file);
      else if (dice < 260 && dice >= 250) Rewrite(file / kCrashReaders * kCrashReaders + static_cast<int>(number_));
      Read(file);
    }
  }

 private:
  void Connect() {
    client_.reset();
    client_ = std::make_unique<Client>(socket_, 0);
    connected_ns_ = NowNs();
  }

  void Drop(int file) {
    const std::string path = CrashPath(source_, file);
    const char* text = path.c_str();
    (void)tier_evict(client_->get(), &text, 1, 0);
  }

  // By rename, as sane programs do; then the cache is told, and from then on the old bytes are wrong for us.
  void Rewrite(int file) {
    if (file >= kCrashFiles) return;
    const std::string path = CrashPath(source_, file);
    const std::uint32_t version = tally_.version[file] + 1;
    Write(path + ".new", CrashContent(source_, file, version));
    std::filesystem::rename(path + ".new", path);
    tally_.since_ns[file] = NowNs();
    tally_.version[file] = version;
    const char* text = path.c_str();
    (void)tier_invalidate(client_->get(), &text, 1, 0);  // unconfirmed: the library serves nothing from this session any more
    ++tally_.rewrites;
    Read(file);
  }

  void Read(int file) {
    const std::int64_t begin = NowNs(), late = lateness_.ns();
    const std::uint32_t newest = tally_.version[file];
    const bool may_be_older = file % kCrashReaders != static_cast<int>(number_) && begin - tally_.since_ns[file] < (kCrashTtlMs + 1000) * kMs;
    const Got got = Get(client_->get(), CrashPath(source_, file));
    const std::int64_t took = NowNs() - begin;
    ++tally_.reads[got.origin];
    if (got.error != 0) {
      ++tally_.failed;
    } else if (!IsRight(file, got.bytes, newest, may_be_older)) {
      KeepWrong(file, got, newest, begin);
    }
    if (took - (lateness_.ns() - late) > kSlowNs) ++tally_.slow;
    if (static_cast<std::uint64_t>(took / kMs) > tally_.slowest_ms) tally_.slowest_ms = static_cast<std::uint64_t>(took / kMs);
    if (got.origin != TIER_FROM_BYPASS) return;
    SleepMs(4);  // plain reads are fast: while no daemon is there they would outnumber the rest
    if (begin - connected_ns_ > kLookAgainNs) Connect();
  }

  void KeepWrong(int file, const Got& got, std::uint32_t newest, std::int64_t begin) {
    const std::uint64_t number = tally_.wrong++;
    if (number >= Tally::kKept) return;
    std::uint64_t version = 0;
    if (got.bytes.size() >= sizeof version) std::memcpy(&version, got.bytes.data(), sizeof version);
    tally_.first_wrong[number] = {file, number_, got.origin, got.bytes.size(), version, newest, (begin - tally_.since_ns[file]) / kMs, (begin - connected_ns_) / kMs};
  }

  bool IsRight(int file, const std::string& bytes, std::uint32_t newest, bool may_be_older) const {
    if (bytes.size() != BytesOf(file)) return false;
    std::uint64_t version = 0;
    std::memcpy(&version, bytes.data(), sizeof version);
    // Written while we read: newer is right as well.
    if (version > tally_.version[file] + 1 || version == 0 || (version < newest && !may_be_older)) return false;
    return bytes == CrashContent(source_, file, static_cast<std::uint32_t>(version));
  }

  const std::string source_;
  const std::string socket_;
  Tally& tally_;
  const unsigned number_;
  std::mt19937 random_;
  const Lateness lateness_;
  std::unique_ptr<Client> client_;
  std::int64_t connected_ns_ = 0;
};

}  // namespace

std::string CrashPath(const std::string& source, int file) { return source + "/d" + std::to_string(file % 7) + "/f" + std::to_string(file); }

std::string CrashContent(const std::string& source, int file, std::uint32_t version) {
  // Quick to make, as every read compares with it; each word says where it belongs.
  std::string bytes(BytesOf(file), '\0');
  std::uint64_t state = (std::hash<std::string>{}(source) ^ static_cast<std::uint64_t>(file)) * 31 + version;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    std::memcpy(bytes.data() + at, &state, 8);
  }
  const std::uint64_t stamp = version;
  std::memcpy(bytes.data(), &stamp, 8);
  return bytes;
}

void WriteCrashFiles(const std::string& source, Tally* tally) {
  for (int file = 0; file < kCrashFiles; ++file) {
    Write(CrashPath(source, file), CrashContent(source, file, 1));
    tally->version[file] = 1;
  }
}

void ReadAndVerify(const std::string& source, const std::string& socket, Tally* tally, unsigned reader) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Reader(source, socket, tally, reader).Run();
  ::_exit(0);
}

}  // namespace tierd::e2e
