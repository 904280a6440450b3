#include "bench/sides.h"

#define XXH_INLINE_ALL
#include <sys/mman.h>
#include <tier/tier.h>
#include <xxhash.h>

#include <cinttypes>
#include <cstring>

#include "tests/pfs_sim/content.h"

namespace bench {
namespace {

std::vector<std::vector<std::uint32_t>> Orders(const FileSideOptions& options, int reader) {
  std::vector<std::vector<std::uint32_t>> orders;
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    orders.push_back(Permutation(options.paths->size(), static_cast<std::uint64_t>(reader * 1000 + epoch + 1)));
  }
  return orders;
}

std::size_t Reads(const FileSideOptions& options) { return options.paths->size() * static_cast<std::size_t>(options.epochs); }

tier_statistics Statistics() {
  tier_statistics statistics{};
  statistics.size = sizeof statistics;
  tier_stats(nullptr, &statistics);
  return statistics;
}

// Why reads that should have been hits of the RAM tier were none.
void NoteMisses(const tier_statistics& before, const tier_statistics& after) {
  std::string line = "not from RAM: ssd " + std::to_string(after.reads[TIER_FROM_SSD] - before.reads[TIER_FROM_SSD]) + ", source " +
                     std::to_string(after.reads[TIER_FROM_SOURCE] - before.reads[TIER_FROM_SOURCE]);
  for (std::uint32_t reason = 0; reason < TIER_FALLBACKS; ++reason) {
    const std::uint64_t count = after.fallback[reason] - before.fallback[reason];
    if (count > 0) line += std::string(", ") + tier_fallback_name(reason) + " " + std::to_string(count);
  }
  Note(line);
}

// One pass in a child; bytes are compared.
class VerifySide final : public Side {
 public:
  VerifySide(const std::vector<std::string>& paths, const std::string& root, const pfs_sim::TreeOptions& tree)
      : paths_(paths), root_(root), tree_(tree) {}
  ReaderResult Run(int /*reader*/) override {
    ReaderResult result;
    for (const std::string& path : paths_) {
      tier_view view;
      if (tier_get(nullptr, path.c_str(), &view, 0) < 0) {
        ++result.errors;
        continue;
      }
      const std::string relative = path.substr(root_.size() + 1);
      const pfs_sim::ContentId id{.seed = tree_.seed, .path = relative, .version = tree_.version};
      if (pfs_sim::CheckContent(id, 0, view.data, view.size)) ++result.errors;
      ++result.files;
      result.bytes += view.size;
      tier_release(&view);
    }
    const tier_statistics statistics = Statistics();
    result.ram = statistics.reads[TIER_FROM_RAM];
    result.ssd = statistics.reads[TIER_FROM_SSD];
    return result;
  }

 private:
  const std::vector<std::string>& paths_;
  const std::string& root_;
  const pfs_sim::TreeOptions& tree_;
};

}  // namespace

void TierSide::Prepare(int reader) {
  orders_ = Orders(options_, reader);
  buffer_.assign(options_.buffer_bytes, 0);
  if (!options_.warm) return;
  for (const std::string& path : *options_.paths) tier_read_file(nullptr, path.c_str(), buffer_.data(), buffer_.size(), nullptr, 0);
}

ReaderResult TierSide::Run(int /*reader*/) {
  ReaderResult result;
  Latencies latencies(options_.timed, Reads(options_));
  const tier_statistics before = options_.warm ? Statistics() : tier_statistics{};
  for (const auto& order : orders_) {
    latencies.Begin();
    for (const std::uint32_t i : order) {
      const ssize_t got = tier_read_file(nullptr, (*options_.paths)[i].c_str(), buffer_.data(), buffer_.size(), nullptr, 0);
      latencies.Note();
      if (got < 0) {
        ++result.errors;
        continue;
      }
      ++result.files;
      result.bytes += static_cast<std::uint64_t>(got);
    }
  }
  const tier_statistics after = Statistics();
  result.ram = after.reads[TIER_FROM_RAM] - before.reads[TIER_FROM_RAM];
  result.ssd = after.reads[TIER_FROM_SSD] - before.reads[TIER_FROM_SSD];
  result.ssd_bytes = after.bytes[TIER_FROM_SSD] - before.bytes[TIER_FROM_SSD];
  if (ram_only_ && result.ram != result.files) {
    result.errors += result.files - result.ram;
    NoteMisses(before, after);
  }
  latencies.Fill(&result);
  return result;
}

void BareSide::Prepare(int reader) {
  orders_ = Orders(options_, reader);
  buffer_.assign(options_.buffer_bytes, 0);
  // In 2 MiB pages, as the index is.
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  places_.reserve(options_.paths->size() * 2 + kHugePage / sizeof(Place));
  ::madvise(reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(places_.data()) + kHugePage - 1) / kHugePage * kHugePage),
            options_.paths->size() * 2 * sizeof(Place) / kHugePage * kHugePage, MADV_HUGEPAGE);
  places_.resize(options_.paths->size() * 2);
  place_of_.resize(options_.paths->size());
  for (std::size_t i = 0; i < place_of_.size(); ++i) {
    const char* const path = (*options_.paths)[i].c_str();
    const std::uint64_t hash = HashOf(path);
    Place& place = FindByHash(hash);
    place_of_[i] = static_cast<std::uint32_t>(&place - places_.data());
    place.hash = hash;
    tier_view view;
    if (tier_get(nullptr, path, &view, 0) != 0) continue;
    if (view.origin != TIER_FROM_RAM) {  // its time was over: it has been confirmed by now
      tier_release(&view);
      if (tier_get(nullptr, path, &view, 0) != 0) continue;
    }
    if (view.origin == TIER_FROM_RAM) place = {view.data, view.size, hash};
    tier_release(&view);
    if (options_.warm && place.data != nullptr) std::memcpy(buffer_.data(), place.data, place.bytes);
  }
}

std::uint64_t BareSide::HashOf(const char* path) {
  const std::uint64_t hash = XXH3_64bits(path, std::strlen(path));
  return hash == 0 ? 1 : hash;
}

BareSide::Place& BareSide::FindByHash(std::uint64_t hash) {
  std::size_t at = static_cast<std::size_t>((static_cast<unsigned __int128>(hash) * places_.size()) >> 64);
  while (places_[at].hash != hash && places_[at].hash != 0) at = at + 1 == places_.size() ? 0 : at + 1;
  return places_[at];
}

ReaderResult BareSide::Run(int /*reader*/) {
  ReaderResult result;
  Latencies latencies(options_.timed, Reads(options_));
  for (const auto& order : orders_) {
    latencies.Begin();
    for (const std::uint32_t i : order) {
      const Place& place = find_ == Find::kByPath ? FindByHash(HashOf((*options_.paths)[i].c_str())) : places_[place_of_[i]];
      if (place.data == nullptr) {
        ++result.errors;
        continue;
      }
      std::memcpy(buffer_.data(), place.data, place.bytes);
      __asm__ volatile("" : : "r"(buffer_.data()) : "memory");
      latencies.Note();
      ++result.files;
      result.bytes += place.bytes;
    }
  }
  latencies.Fill(&result);
  return result;
}

void PosixSide::Prepare(int reader) {
  orders_ = Orders(options_, reader);
  buffer_.assign(options_.buffer_bytes, 0);
  if (options_.warm) HeatPageCache(*options_.paths);
}

ReaderResult PosixSide::Run(int /*reader*/) {
  ReaderResult result;
  Latencies latencies(options_.timed, Reads(options_));
  for (const auto& order : orders_) {
    latencies.Begin();
    for (const std::uint32_t i : order) {
      const ssize_t got = PosixReadFile((*options_.paths)[i].c_str(), buffer_.data(), buffer_.size());
      latencies.Note();
      if (got < 0) ++result.errors;
      ++result.files;
      result.bytes += got > 0 ? static_cast<std::uint64_t>(got) : 0;
    }
  }
  latencies.Fill(&result);
  return result;
}

bool WarmAndVerify(const std::vector<std::string>& paths, const std::string& root, const pfs_sim::TreeOptions& tree) {
  for (int pass = 1; pass <= 6; ++pass) {
    VerifySide side(paths, root, tree);
    const RunResult result = RunReaders(1, side);
    if (!result.good) {
      Note("reading through tierd went wrong: errors or wrong bytes");
      return false;
    }
    Note("pass " + std::to_string(pass) + ": " + std::to_string(result.ram) + " of " + std::to_string(result.files) + " from RAM, " +
         std::to_string(static_cast<long>(static_cast<double>(result.files) / result.seconds)) + " files/s, bytes right");
    if (result.ram == paths.size()) return true;
  }
  return false;
}

void HeatPageCache(const std::vector<std::string>& paths) {
  std::vector<char> buffer(1 << 20);
  for (const std::string& path : paths) PosixReadFile(path.c_str(), buffer.data(), buffer.size());
}

}  // namespace bench
