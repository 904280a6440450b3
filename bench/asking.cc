#include "bench/asking.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "bench/harness.h"
#include "tierd/base/crc32c.h"
#include "tierd/base/unique_fd.h"
#include "tierd/io/aligned_buffer.h"
#include "tierd/io/io_engine.h"

namespace bench {
namespace {

using tierd::io::AlignedBuffer;

constexpr int kTurns = 40;
constexpr int kReadsPerTurn = 50;
constexpr std::uint32_t kBlock = AlignedBuffer::kAlignment;

// Memory that reads go to, one place after the other. Of large pages, as a tier's: a device that has to be told of each small page takes half as long again.
class Frames {
 public:
  explicit Frames(std::uint32_t bytes) : bytes_(bytes), memory_(kFrames * bytes) {
    if (memory_.empty()) return;
    (void)::madvise(memory_.data(), memory_.size(), MADV_HUGEPAGE);
    std::memset(memory_.data(), 1, memory_.size());
  }
  bool empty() const { return memory_.empty(); }
  std::byte* Next() { return memory_.data() + next_++ % kFrames * bytes_; }

 private:
  static constexpr std::size_t kFrames = 64;  // of a file each: the next one is in no processor's cache
  const std::size_t bytes_;
  AlignedBuffer memory_;
  std::size_t next_ = 0;
};

// As large as what libtier and tierd say to each other for a file.
struct Question {
  std::uint64_t offset;
  std::byte rest[120];
};
struct Reply {
  std::uint32_t sum;
  std::byte rest[116];
};

double CpuNs(clockid_t clock) {
  timespec ts{};
  ::clock_gettime(clock, &ts);
  return static_cast<double>(ts.tv_sec) * 1e9 + static_cast<double>(ts.tv_nsec);
}

// Until the socket is closed.
void Answer(int socket, int fd, std::uint32_t bytes) {
  tierd::io::EngineOptions options;
  auto engine = tierd::io::MakeEngine(tierd::io::EngineKind::kUring, options);
  if (!engine.ok()) engine = tierd::io::MakeEngine(tierd::io::EngineKind::kThreads, options);
  const tierd::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Frames frames(bytes + kBlock);
  if (!engine.ok() || !epoll.valid() || frames.empty()) return;
  for (const int watched : {socket, engine.value()->event_fd()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = watched}};
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, watched, &event) != 0) return;
  }
  for (;;) {
    epoll_event event;
    if (::epoll_wait(epoll.get(), &event, 1, -1) != 1) continue;
    if (event.data.fd != socket) {
      engine.value()->Poll(1);
      continue;
    }
    Question question;
    if (::recv(socket, &question, sizeof question, 0) != sizeof question) return;
    std::byte* const memory = frames.Next();
    const iovec whole{memory, bytes + kBlock};
    engine.value()->SubmitReadv(fd, {&whole, 1}, question.offset, [=](tierd::io::IoResult) {
      Reply reply{.sum = tierd::Crc32cCold(memory + kBlock, bytes), .rest = {}};
      (void)::send(socket, &reply, sizeof reply, MSG_NOSIGNAL);
    });
    engine.value()->Flush();
  }
}

}  // namespace

Asking MeasureAsking(const std::string& file, std::uint32_t bytes) {
  const tierd::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  struct stat st;
  if (!fd.valid() || ::fstat(fd.get(), &st) != 0 || st.st_size < 2 * std::int64_t{bytes} || bytes % kBlock != 0) return {};
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return {};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(sockets[0]);
    Answer(sockets[1], fd.get(), bytes);
    ::_exit(0);
  }
  ::close(sockets[1]);
  Samples alone_ns, alone_cpu, asked_ns, asked_cpu;
  Frames frames(bytes);
  clockid_t other;
  bool good = pid > 0 && !frames.empty() && ::clock_getcpuclockid(pid, &other) == 0;
  std::mt19937_64 random(1);
  const auto somewhere = [&] { return random() % (static_cast<std::uint64_t>(st.st_size) / kBlock - bytes / kBlock - 1) * kBlock; };
  const auto alone = [&] { return ::pread(fd.get(), frames.Next(), bytes, static_cast<off_t>(somewhere())) == static_cast<ssize_t>(bytes); };
  const auto asked = [&] {
    const Question question{.offset = somewhere(), .rest = {}};
    Reply reply;
    return ::send(sockets[0], &question, sizeof question, MSG_NOSIGNAL) == sizeof question && ::recv(sockets[0], &reply, sizeof reply, 0) == sizeof reply;
  };
  const auto turn = [&](const auto& read, Samples& took, Samples& cpu) {
    const double from = Now(), cpu_from = CpuNs(CLOCK_PROCESS_CPUTIME_ID) + CpuNs(other);
    for (int i = 0; i < kReadsPerTurn && good; ++i) good = read();
    took.values.push_back((Now() - from) * 1e9 / kReadsPerTurn);
    cpu.values.push_back((CpuNs(CLOCK_PROCESS_CPUTIME_ID) + CpuNs(other) - cpu_from) / kReadsPerTurn);
  };
  for (int i = 0; i < kTurns && good; ++i) {
    turn(alone, alone_ns, alone_cpu);
    turn(asked, asked_ns, asked_cpu);
  }
  ::close(sockets[0]);
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  return good ? Asking{alone_ns.median(), alone_cpu.median(), asked_ns.median(), asked_cpu.median()} : Asking{};
}

}  // namespace bench
