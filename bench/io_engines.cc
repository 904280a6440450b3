// How fast each I/O engine reads a directory of files, and how much CPU it takes: what the choice of an engine rests on.
//
//   io_engines DIR [--depth N] [--workers N] [--files N] [--rounds N] [--readv FILE] [--direct]
//
// Every round reads all files once with each engine (sides interleaved); printed are the median, least and greatest files/s and
// CPU microseconds per file, io-wq and pool threads included. --readv FILE reads 110 KB pieces of one open file instead.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tierd/base/clock.h"
#include "tierd/base/unique_fd.h"
#include "tierd/io/aligned_buffer.h"
#include "tierd/io/io_engine.h"

namespace {

using tierd::io::EngineKind;

constexpr std::size_t kPiece = 27 * 4096;  // 110 KB

struct Arguments {
  std::string directory;
  std::string readv;
  unsigned depth = 256;
  unsigned workers = 256;
  std::size_t files = 10'000;
  int rounds = 5;
  bool direct = false;
};

struct Round {
  double per_second = 0;
  double cpu_us = 0;
};

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Submits `count` requests with at most `depth` under way; `submit(i, slot, done)` sends request i into buffer `slot`.
template <typename Submit>
Round Drive(tierd::io::IoEngine& engine, std::size_t count, unsigned depth, Submit submit) {
  const tierd::SystemClock clock;
  std::vector<std::size_t> free_slots;
  for (std::size_t i = 0; i < depth; ++i) free_slots.push_back(i);
  const double cpu = CpuSeconds();
  const std::int64_t start = clock.PreciseNs();
  std::size_t sent = 0;
  std::size_t done = 0;
  while (done < count) {
    while (sent < count && !free_slots.empty()) {
      const std::size_t slot = free_slots.back();
      free_slots.pop_back();
      submit(sent++, slot, [&done, &free_slots, slot](int error) {
        if (error != 0) {
          std::fprintf(stderr, "io_engines: a read failed: %s\n", std::strerror(error));
          std::exit(1);
        }
        ++done;
        free_slots.push_back(slot);
      });
    }
    engine.Wait(-1, 64);
  }
  const double seconds = static_cast<double>(clock.PreciseNs() - start) * 1e-9;
  return {static_cast<double>(count) / seconds, (CpuSeconds() - cpu) * 1e6 / static_cast<double>(count)};
}

Round ReadFiles(tierd::io::IoEngine& engine, const Arguments& args, int root, const std::vector<std::string>& paths,
                const tierd::io::AlignedBuffer& memory) {
  return Drive(engine, paths.size(), args.depth, [&](std::size_t i, std::size_t slot, auto done) {
    tierd::io::FileReadRequest request;
    request.root_fd = root;
    request.path = paths[i];
    request.buffer = memory.data() + slot * kPiece;
    request.capacity = kPiece;
    request.direct = args.direct;
    engine.SubmitFileRead(std::move(request), [done](const tierd::io::FileReadResult& r) { done(r.error); });
  });
}

Round ReadPieces(tierd::io::IoEngine& engine, const Arguments& args, int fd, const std::vector<std::uint64_t>& offsets,
                 const tierd::io::AlignedBuffer& memory) {
  return Drive(engine, offsets.size(), args.depth, [&](std::size_t i, std::size_t slot, auto done) {
    const iovec iov{memory.data() + slot * kPiece, kPiece};
    engine.SubmitReadv(fd, {&iov, 1}, offsets[i], [done](tierd::io::IoResult r) { done(r.error); });
  });
}

std::vector<std::string> FindFiles(const Arguments& args) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(args.directory, error)) {
    if (paths.size() == args.files) break;
    if (entry.is_regular_file(error)) paths.push_back(std::filesystem::relative(entry.path(), args.directory).string());
  }
  std::shuffle(paths.begin(), paths.end(), std::mt19937_64(1));
  return paths;
}

void Print(const char* engine, std::vector<Round> rounds) {
  std::sort(rounds.begin(), rounds.end(), [](const Round& a, const Round& b) { return a.per_second < b.per_second; });
  const Round& median = rounds[rounds.size() / 2];
  std::printf("%-9s %10.0f/s  (%.0f .. %.0f)  %7.2f us CPU each\n", engine, median.per_second, rounds.front().per_second,
              rounds.back().per_second, median.cpu_us);
}

bool Parse(int argc, char** argv, Arguments* args) {
  if (argc < 2) return false;
  args->directory = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--direct") {
      args->direct = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (option == "--depth") args->depth = static_cast<unsigned>(std::atoi(value));
    else if (option == "--workers") args->workers = static_cast<unsigned>(std::atoi(value));
    else if (option == "--files") args->files = static_cast<std::size_t>(std::atoll(value));
    else if (option == "--rounds") args->rounds = std::atoi(value);
    else if (option == "--readv") args->readv = value;
    else return false;
  }
  return args->depth > 0 && args->rounds > 0;
}

std::vector<std::uint64_t> PieceOffsets(int fd, std::size_t count) {
  struct stat st {};
  ::fstat(fd, &st);
  const std::uint64_t pieces = static_cast<std::uint64_t>(st.st_size) / kPiece;
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> offsets;
  while (pieces > 0 && offsets.size() < count) offsets.push_back(random() % pieces * kPiece);
  return offsets;
}

int Run(const Arguments& args) {
  const tierd::UniqueFd root(::open(args.directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const bool pieces = !args.readv.empty();
  const tierd::UniqueFd file(pieces ? ::open(args.readv.c_str(), O_RDONLY | O_CLOEXEC | (args.direct ? O_DIRECT : 0)) : -1);
  const tierd::io::AlignedBuffer memory(args.depth * kPiece);
  if (!root.valid() || (pieces && !file.valid()) || memory.empty()) {
    std::fprintf(stderr, "io_engines: %s: %s\n", args.directory.c_str(), std::strerror(errno));
    return 1;
  }
  std::fill(memory.span().begin(), memory.span().end(), std::byte{1});
  const std::vector<std::string> paths = pieces ? std::vector<std::string>() : FindFiles(args);
  const std::vector<std::uint64_t> offsets = pieces ? PieceOffsets(file.get(), args.files) : std::vector<std::uint64_t>();
  if (paths.empty() && offsets.empty()) {
    std::fprintf(stderr, "io_engines: nothing to read\n");
    return 1;
  }

  std::vector<std::unique_ptr<tierd::io::IoEngine>> engines;
  for (const EngineKind kind : {EngineKind::kUring, EngineKind::kThreads}) {
    auto engine = tierd::io::MakeEngine(kind, {.depth = args.depth, .workers = args.workers});
    if (engine.ok()) {
      engines.push_back(std::move(engine).value());
    } else {
      std::printf("%s\n", engine.status().ToString().c_str());
    }
  }
  std::vector<std::vector<Round>> rounds(engines.size());
  for (int r = 0; r <= args.rounds; ++r) {
    for (std::size_t e = 0; e < engines.size(); ++e) {
      const Round round = pieces ? ReadPieces(*engines[e], args, file.get(), offsets, memory)
                                 : ReadFiles(*engines[e], args, root.get(), paths, memory);
      if (r > 0) rounds[e].push_back(round);  // the first warms both up
    }
  }
  std::printf("%zu reads, depth %u, workers %u, %d rounds\n", paths.size() + offsets.size(), args.depth, args.workers, args.rounds);
  for (std::size_t e = 0; e < engines.size(); ++e) Print(engines[e]->name(), rounds[e]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments args;
  if (!Parse(argc, argv, &args)) {
    std::fprintf(stderr, "usage: io_engines DIR [--depth N] [--workers N] [--files N] [--rounds N] [--readv FILE] [--direct]\n");
    return 64;
  }
  return Run(args);
}
