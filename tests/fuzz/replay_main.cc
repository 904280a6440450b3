// Feeds a corpus to a fuzz target without libFuzzer, so that every build replays it: each file as it is, then mutants of it (cut, flipped, grown,
// joined with its neighbour), the same ones in every run.
//
//   fuzz_x CORPUS_DIRECTORY [MUTANTS_PER_FILE]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

Bytes Mutant(const Bytes& seed, const Bytes& other, std::mt19937& random) {
  static constexpr std::uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff, '/', '.', '"', '%', '\n'};
  Bytes mutant = seed;
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(mutant.size() + 1);
    switch (below(6)) {
      case 0: mutant.resize(at); break;
      case 1: mutant.insert(mutant.begin() + static_cast<std::ptrdiff_t>(at), kEdges[below(std::size(kEdges))]); break;
      case 2:
        if (at < mutant.size()) mutant[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 3:
        if (at < mutant.size()) mutant[at] = kEdges[below(std::size(kEdges))];
        break;
      case 4:
        if (at < mutant.size()) mutant.erase(mutant.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default: {
        const std::size_t from = below(other.size() + 1);
        mutant.resize(at);
        mutant.insert(mutant.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
  }
  return mutant;
}

// The bytes are in memory of exactly their size, so that a sanitizer sees one byte too many.
void Feed(const Bytes& bytes) {
  const Bytes exact(bytes);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIRECTORY [MUTANTS_PER_FILE]\n", argv[0]);
    return 64;
  }
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    std::fprintf(stderr, "%s: no seeds\n", argv[1]);
    return 1;
  }
  const int mutants = argc > 2 ? std::atoi(argv[2]) : 0;
  std::vector<Bytes> seeds;
  for (const auto& path : paths) seeds.push_back(Read(path));
  Feed({});
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    Feed(seeds[i]);
    std::mt19937 random(static_cast<std::uint32_t>(i));
    for (int n = 0; n < mutants; ++n) Feed(Mutant(seeds[i], seeds[random() % seeds.size()], random));
  }
  std::printf("%zu seeds, %zu mutants\n", seeds.size(), seeds.size() * static_cast<std::size_t>(mutants));
  return 0;
}
