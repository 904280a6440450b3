// tier_epochs DIRECTORY [EPOCHS [THREADS]]: reads all files of a directory as a training job does, each epoch in a new random order, and says
// where the bytes came from. Works with and without a running tierd.
//   c++ -std=c++17 -pthread -o tier_epochs tier_epochs.cc $(pkg-config --cflags --libs tier)
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <tier/tier.hpp>

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: tier_epochs DIRECTORY [EPOCHS [THREADS]]\n"), 64;
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 3;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 4;
  const tier::Client client;
  std::vector<std::string> paths;
  if (const int error = client.List(argv[1], &paths); error < 0) return std::fprintf(stderr, "%s: %s\n", argv[1], std::strerror(-error)), 1;
  for (std::string& path : paths) path = std::string(argv[1]) + "/" + path;
  std::sort(paths.begin(), paths.end());
  std::mt19937 random(1);
  tier_statistics before = client.Statistics();
  std::atomic<unsigned> failed{0};
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    std::shuffle(paths.begin(), paths.end(), random);
    const auto begin = std::chrono::steady_clock::now();
    std::atomic<std::size_t> next{0};
    std::atomic<unsigned> sum{0};
    const auto read = [&] {
      tier::View view;
      for (std::size_t i; (i = next++) < paths.size();) {
        const int error = client.Get(paths[i], &view);  // in place: nothing is copied, and a hit makes no system call
        if (error < 0 && error != -EISDIR) ++failed;
        unsigned mine = 0;
        for (const char c : view.text()) mine += static_cast<unsigned char>(c);
        sum += mine;
      }
    };
    std::vector<std::thread> readers;
    for (int i = 0; i < threads; ++i) readers.emplace_back(read);
    for (std::thread& reader : readers) reader.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const tier_statistics now = client.Statistics();
    std::printf("epoch %d: %.3f s, checksum %08x, reads:", epoch, seconds, sum.load());
    const char* const names[] = {"RAM", "SSD", "source by tierd", "source"};
    for (int i = 0; i < TIER_ORIGINS; ++i)
      std::printf(" %s %llu", names[i], static_cast<unsigned long long>(now.reads[i] - before.reads[i]));
    std::puts("");
    before = now;
  }
  return failed == 0 ? 0 : 1;
}
