// One daemon life over an SSD directory, to be killed: verifies everything that it recovers, writes, replaces, forgets, reclaims and
// invalidates for a while, and leaves. Usage: ssd_crash_child DIRECTORY SEED MILLISECONDS. Exit 0: all right, 2: wrong bytes or a lost
// record that had been synced, 3: the tier would not start. SYNCED in the directory's parent lists what must be there after a kill.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>

#include "tests/ssd/tier_fixture.h"

namespace tierd::ssd {
namespace {

constexpr std::uint64_t kVolatileSet = 9;  // reclaimed, forgotten, invalidated
constexpr std::uint64_t kDurableSet = 10;  // a few files that stay: worth more than everything else

// In the list of what was synced: replaced since. The old version is forgotten for good at once, the new one may be in a buffer.
constexpr std::uint64_t kNotSynced = 0;

bool IsDurable(const std::string& path) { return path[0] == 'd'; }

class Child {
 public:
  Child(const std::string& directory, std::uint64_t seed, io::IoEngine& engine)
      : life_(SmallOptions(directory), &engine), random_(seed), synced_name_(directory + ".synced") {
    life_.worth_of = [](const Item& item) { return IsDurable(item.path) ? 1000.0 : item.identity.key.lo % 2 == 0 ? 1.0 : 0.0; };
  }

  int Run(int milliseconds) {
    const RecoveryReport report = life_.Start();
    if (life_.tier == nullptr || !report.status.ok()) return Fail(3, "start: " + report.status.ToString());
    if (const int verdict = CheckRecovered(); verdict != 0) return verdict;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    synced_.Reset(::open(synced_name_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
    while (std::chrono::steady_clock::now() < end) {
      if (const int verdict = Step(); verdict != 0) return verdict;
    }
    return life_.tier->Stop(20'000).ok() ? 0 : Fail(2, "stop");
  }

 private:
  int Fail(int code, const std::string& why) {
    std::fprintf(stderr, "crash child: %s\n", why.c_str());
    return code;
  }

  static bool wrong_bytes() { return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed(); }
  // Or gone: not where it was when the read began.
  bool Moved(const Life::Name& name, const Item& item) const {
    const auto now = life_.items.find(name);
    return now == life_.items.end() || !(now->second.location == item.location);
  }

  int CheckRecovered() {
    std::map<std::string, std::uint64_t> synced;
    std::ifstream lines(synced_name_);
    std::string path;
    std::uint64_t version = 0;
    while (lines >> path >> version) synced[path] = version;
    for (const auto& [name, wanted] : synced) {
      if (wanted == kNotSynced) continue;
      const auto item = life_.items.find({name, 0});
      if (item == life_.items.end()) return Fail(2, name + " had been synced and is lost");
      if (item->second.identity.version.mtime_ns < static_cast<std::int64_t>(wanted) * 1'000'000'000) return Fail(2, name + " came back old");
    }
    std::vector<Life::Name> names;
    for (const auto& [name, item] : life_.items) names.push_back(name);
    for (const Life::Name& name : names) {
      const auto found = life_.items.find(name);
      if (found == life_.items.end()) continue;  // reclaimed meanwhile
      const Item item = found->second;
      const ReadOutcome outcome = life_.GetAt(item);
      if (wrong_bytes()) return Fail(2, name.first + ": wrong bytes");
      if (outcome != ReadOutcome::kOk && synced.contains(name.first) && !Moved(name, item)) {
        return Fail(2, name.first + " had been synced and cannot be read");
      }
      versions_[name.first] = static_cast<std::uint64_t>(item.identity.version.mtime_ns / 1'000'000'000);
    }
    return 0;
  }

  int Step() {
    switch (random_() % 40) {
      case 0: return SyncSome();
      case 1:
        if (random_() % 16 == 0) Invalidate();
        return 0;
      case 2: return ReadSome();
      case 3: ForgetSome(); return 0;
      default: break;
    }
    const bool durable = random_() % 50 == 0;
    const std::string path = durable ? "d" + std::to_string(random_() % 10) : "v" + std::to_string(random_() % 300);
    life_.dataset = durable ? kDurableSet : kVolatileSet;
    if (durable && !Note(path + " " + std::to_string(kNotSynced) + "\n")) return Fail(3, "cannot note what is replaced");
    (void)life_.Put(path, ++versions_[path], 1 + random_() % (random_() % 4 == 0 ? 60'000 : 6'000));  // a full tier refuses: no matter
    return 0;
  }

  int SyncSome() {
    std::map<std::string, std::uint64_t> before;
    for (const auto& [name, item] : life_.items) {
      if (IsDurable(name.first)) before[name.first] = static_cast<std::uint64_t>(item.identity.version.mtime_ns / 1'000'000'000);
    }
    bool done = false, ok = false;
    life_.tier->Sync([&](Status s) {
      done = true;
      ok = s.ok();
    });
    if (!life_.RunUntil([&] { return done; })) return Fail(2, "sync hangs");
    std::string lines;
    for (const auto& [name, version] : before) {
      if (life_.items.contains({name, 0})) lines += name + " " + std::to_string(version) + "\n";
    }
    if (ok && !Note(lines)) return Fail(3, "cannot note what was synced");
    return 0;
  }

  bool Note(const std::string& lines) const { return ::write(synced_.get(), lines.data(), lines.size()) == static_cast<ssize_t>(lines.size()); }

  void Invalidate() {
    bool done = false;
    life_.tier->InvalidateDataset(kVolatileSet, [&](Status) { done = true; });
    std::erase_if(life_.items, [&](const auto& entry) {
      if (IsDurable(entry.first.first)) return false;
      life_.tier->Forget(entry.second.location);
      return true;
    });
    life_.RunUntil([&] { return done; });
  }

  int ReadSome() {
    for (int i = 0; i < 5 && !life_.items.empty(); ++i) {
      auto it = life_.items.begin();
      std::advance(it, static_cast<std::ptrdiff_t>(random_() % life_.items.size()));
      const Life::Name name = it->first;
      const Item item = it->second;
      const ReadOutcome outcome = life_.GetAt(item);
      if (wrong_bytes() || (outcome != ReadOutcome::kOk && !Moved(name, item))) return Fail(2, name.first + " does not read back");
    }
    return 0;
  }

  void ForgetSome() {
    for (int i = 0; i < 20 && !life_.items.empty(); ++i) {
      auto it = life_.items.begin();
      std::advance(it, static_cast<std::ptrdiff_t>(random_() % life_.items.size()));
      if (IsDurable(it->first.first)) continue;
      life_.tier->Forget(it->second.location);
      life_.items.erase(it);
    }
  }

  Life life_;
  std::mt19937_64 random_;
  std::string synced_name_;
  UniqueFd synced_;
  std::map<std::string, std::uint64_t> versions_;
};

}  // namespace
}  // namespace tierd::ssd

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 4) return 64;
  auto engine = tierd::io::MakeEngine(tierd::io::EngineKind::kThreads, {.depth = 64, .workers = 4, .max_replacements = 4});
  if (!engine.ok()) return 3;
  tierd::ssd::Child child(argv[1], std::strtoull(argv[2], nullptr, 10), **engine);
  return child.Run(std::atoi(argv[3]));
}
