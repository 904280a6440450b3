#include "examples/trainer/loader.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <thread>

namespace trainer {
namespace {

// A ring of batches. Reading thread and consumer agree on two counters per slot and never wait for a lock.
class Pass {
 public:
  Pass(Reader& reader, const LoaderOptions& options, const std::vector<Sample>& samples, const std::vector<std::uint32_t>& order)
      : reader_(reader), options_(options), samples_(samples), order_(order), slots_(options.window) {
    for (Slot& slot : slots_) {
      slot.pixels.resize(options.batch * kImagePixels);
      slot.labels.resize(options.batch);
    }
  }

  // After a failure samples are still counted, only not read: so everybody comes to the end by the usual way.
  void ReadSamples() {
    for (std::size_t i = next_++; i < order_.size(); i = next_++) {
      const std::size_t batch = i / options_.batch;
      std::size_t consumed = consumed_.load(std::memory_order_acquire);
      while (batch >= consumed + slots_.size()) {
        consumed_.wait(consumed, std::memory_order_acquire);
        consumed = consumed_.load(std::memory_order_acquire);
      }
      Slot& slot = slots_[batch % slots_.size()];
      const Sample& sample = samples_[order_[i]];
      const std::size_t place = i % options_.batch;
      std::string why;
      slot.labels[place] = sample.label;
      if (!failed_ && !reader_.Read(sample.path, slot.pixels.data() + place * kImagePixels, &why)) Fail(std::move(why));
      if (slot.filled.fetch_add(1, std::memory_order_acq_rel) + 1 == Count(batch)) slot.filled.notify_one();
    }
  }

  void Consume(const std::function<void(const Batch&)>& consume) {
    const std::size_t batches = (order_.size() + options_.batch - 1) / options_.batch;
    for (std::size_t batch = 0; batch < batches; ++batch) {
      Slot& slot = slots_[batch % slots_.size()];
      std::size_t filled = slot.filled.load(std::memory_order_acquire);
      while (filled != Count(batch)) {
        slot.filled.wait(filled, std::memory_order_acquire);
        filled = slot.filled.load(std::memory_order_acquire);
      }
      if (!failed_) consume({.pixels = slot.pixels.data(), .labels = slot.labels.data(), .count = filled});
      slot.filled.store(0, std::memory_order_relaxed);
      consumed_.store(batch + 1, std::memory_order_release);
      consumed_.notify_all();
    }
  }

  bool Succeeded(std::string* why) {
    const std::lock_guard lock(mutex_);
    if (failed_) *why = why_;
    return !failed_;
  }

 private:
  struct Slot {
    std::vector<std::uint8_t> pixels;
    std::vector<std::uint8_t> labels;
    std::atomic<std::size_t> filled = 0;
  };

  std::size_t Count(std::size_t batch) const { return std::min(options_.batch, order_.size() - batch * options_.batch); }

  void Fail(std::string why) {
    const std::lock_guard lock(mutex_);
    if (!failed_) why_ = std::move(why);
    failed_ = true;
  }

  Reader& reader_;
  const LoaderOptions options_;
  const std::vector<Sample>& samples_;
  const std::vector<std::uint32_t>& order_;

  std::vector<Slot> slots_;
  std::atomic<std::size_t> next_ = 0;      // index into order_ of the next sample to read
  std::atomic<std::size_t> consumed_ = 0;  // batches done with
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::string why_;  // guarded by mutex_
};

// splitmix64: the same numbers on every machine and with every standard library.
std::uint64_t NextRandom(std::uint64_t* state) {
  std::uint64_t x = *state += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

bool Loader::Run(const std::vector<Sample>& samples, const std::vector<std::uint32_t>& order,
                 const std::function<void(const Batch&)>& consume, std::string* why) {
  Pass pass(reader_, options_, samples, order);
  std::vector<std::thread> threads;
  for (int i = 0; i < options_.threads; ++i) threads.emplace_back([&pass] { pass.ReadSamples(); });
  pass.Consume(consume);
  for (std::thread& thread : threads) thread.join();
  return pass.Succeeded(why);
}

std::vector<std::uint32_t> ShuffledOrder(std::size_t count, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL + epoch;
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[NextRandom(&state) % i]);
  return order;
}

}  // namespace trainer
