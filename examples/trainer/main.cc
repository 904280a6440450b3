// tier_trainer: trains a small classifier on image files, to show and measure what tierd does for a training job.
//
//   tier_trainer DIR [--reader posix|tier] [--epochs 4] [--threads 16] [--batch 64] [--seed 1] [--json] [--step]
//
// DIR holds train/CLASS/*.pgm and test/CLASS/*.pgm (fashion_files writes them). Per epoch every training image is read once in a new random
// order and every test image once; samples/s counts both. Accuracy and loss depend on the bytes, the seed and nothing else.
// Exit 0, 1 when something could not be read, 64 for a wrong command line.
#include <CLI/CLI.hpp>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <iostream>
#include <string>

#include "examples/trainer/loader.h"

namespace trainer {
namespace {

constexpr float kRate = 0.04F;

struct Settings {
  std::string directory;
  std::string reader = "posix";
  int epochs = 4;
  std::uint64_t seed = 1;
  bool json = false;
  bool step = false;
  LoaderOptions loader;
};

struct EpochReport {
  int epoch = 0;
  double seconds = 0;
  std::size_t samples = 0;
  Score score{};
  ReadCounts reads{};
};

// The samples of one class folder after the other, names sorted: the same list for both readers.
bool ListSamples(Reader& reader, const std::string& root, std::vector<Sample>* samples, std::string* why) {
  std::vector<std::string> classes;
  if (!reader.List(root, &classes, why)) return false;
  if (classes.empty() || classes.size() > kClasses) {
    *why = root + ": " + std::to_string(classes.size()) + " class folders; 1 to " + std::to_string(kClasses) + " are expected";
    return false;
  }
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const std::string folder = root + "/" + classes[label];
    std::vector<std::string> names;
    if (!reader.List(folder, &names, why)) return false;
    for (const std::string& name : names) samples->push_back({.path = folder + "/" + name, .label = static_cast<std::uint8_t>(label)});
  }
  if (samples->empty()) *why = root + ": no images";
  return !samples->empty();
}

ReadCounts Difference(const ReadCounts& now, const ReadCounts& before) {
  return {.ram = now.ram - before.ram, .ssd = now.ssd - before.ssd, .source = now.source - before.source, .bypass = now.bypass - before.bypass};
}

void Print(const Settings& settings, const EpochReport& report) {
  const double accuracy = static_cast<double>(report.score.right) / static_cast<double>(report.score.samples);
  const double loss = report.score.loss / static_cast<double>(report.score.samples);
  const double rate = static_cast<double>(report.samples) / report.seconds;
  if (settings.json) {
    std::printf("{\"epoch\": %d, \"reader\": \"%s\", \"seconds\": %.3f, \"samples\": %zu, \"samples_per_s\": %.0f, \"accuracy\": %.17g, "
                "\"loss\": %.17g, \"ram\": %" PRIu64 ", \"ssd\": %" PRIu64 ", \"source\": %" PRIu64 ", \"bypass\": %" PRIu64 "}\n",
                report.epoch, settings.reader.c_str(), report.seconds, report.samples, rate, accuracy, loss, report.reads.ram, report.reads.ssd,
                report.reads.source, report.reads.bypass);
  } else {
    std::printf("epoch %d: %7.2f s %9.0f samples/s   accuracy %.17g   loss %.17g", report.epoch, report.seconds, rate, accuracy, loss);
    if (settings.reader == "tier") {
      std::printf("   ram %" PRIu64 " ssd %" PRIu64 " source %" PRIu64 " bypass %" PRIu64, report.reads.ram, report.reads.ssd, report.reads.source,
                  report.reads.bypass);
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

bool RunEpochs(const Settings& settings, Reader& reader, std::string* why) {
  std::vector<Sample> train;
  std::vector<Sample> test;
  if (!ListSamples(reader, settings.directory + "/train", &train, why)) return false;
  if (!ListSamples(reader, settings.directory + "/test", &test, why)) return false;
  Loader loader(reader, settings.loader);
  Model model;
  std::vector<std::uint32_t> test_order(test.size());
  for (std::size_t i = 0; i < test.size(); ++i) test_order[i] = static_cast<std::uint32_t>(i);
  ReadCounts before = reader.Counts();
  for (int epoch = 1; epoch <= settings.epochs; ++epoch) {
    const auto started = std::chrono::steady_clock::now();
    EpochReport report{.epoch = epoch, .samples = train.size() + test.size()};
    const auto order = ShuffledOrder(train.size(), settings.seed, static_cast<std::uint64_t>(epoch));
    if (!loader.Run(train, order, [&](const Batch& batch) { model.Train(batch, kRate); }, why)) return false;
    const auto evaluate = [&](const Batch& batch) {
      const Score part = model.Evaluate(batch);
      report.score.right += part.right;
      report.score.samples += part.samples;
      report.score.loss += part.loss;
    };
    if (!loader.Run(test, test_order, evaluate, why)) return false;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    const ReadCounts now = reader.Counts();
    report.reads = Difference(now, before);
    before = now;
    Print(settings, report);
    std::string line;
    if (settings.step && epoch < settings.epochs) std::getline(std::cin, line);
  }
  return true;
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app{"Trains a small classifier on image files in class folders."};
  app.add_option("DIR", settings.directory, "holds train/CLASS/* and test/CLASS/*")->required();
  app.add_option("--reader", settings.reader, "posix: open, fstat, read, close; tier: through tierd")->check(CLI::IsMember({"posix", "tier"}));
  app.add_option("--epochs", settings.epochs)->check(CLI::Range(1, 1000));
  app.add_option("--threads", settings.loader.threads, "that read images")->check(CLI::Range(1, 256));
  app.add_option("--batch", settings.loader.batch, "images per step")->check(CLI::Range(1, 4096));
  app.add_option("--seed", settings.seed, "of the random order");
  app.add_flag("--json", settings.json, "one JSON object per epoch and line");
  app.add_flag("--step", settings.step, "after each epoch wait for a line on stdin");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  std::string why;
  const auto reader = settings.reader == "tier" ? MakeTierReader(&why) : MakePosixReader();
  if (reader == nullptr || !RunEpochs(settings, *reader, &why)) {
    std::fprintf(stderr, "tier_trainer: %s\n", why.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trainer

int main(int argc, char** argv) { return trainer::Main(argc, argv); }
