// The kernel cancels what would block where it can start no io-wq worker: threads do it then.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <thread>

#include "tests/io/engine_test_base.h"

namespace tierd::io {
namespace {

class NoWorkers : public EngineTest {
 protected:
  // Steps of the ring are cancelled, all or those of one kind; those of threads are not.
  void Make(std::optional<Step> only = std::nullopt) {
    faults_ = std::make_unique<ScriptedFaults>([this, only, loop = std::this_thread::get_id()](Step step, long result) {
      if (std::this_thread::get_id() != loop) return result;
      ++of_the_ring_;
      return !only || step == *only ? -ECANCELED : result;
    });
    MakeEngineOrSkip(EngineKind::kUring, {.faults = faults_.get()});
  }
  ~NoWorkers() override { engine_.reset(); }

  std::unique_ptr<ScriptedFaults> faults_;
  int of_the_ring_ = 0;
};

TEST_F(NoWorkers, ThreadsReadWhatWasCancelledAndAllThatComesBehind) {
  MAKE_ENGINE();
  const std::string bytes = WriteContent("file", 50'000);
  EXPECT_STREQ(engine_->name(), "io_uring");
  const FileOutcome first = Read("file");
  EXPECT_EQ(first.result.error, 0);
  EXPECT_TRUE(first.bytes == bytes);
  EXPECT_STREQ(engine_->name(), "threads");
  const int cancelled = of_the_ring_;
  EXPECT_TRUE(Read("file").bytes == bytes);
  EXPECT_EQ(Stat("file").stat.size, 50'000u);
  EXPECT_EQ(Read("none").result.error, ENOENT);
  EXPECT_EQ(of_the_ring_, cancelled);
  EXPECT_EQ(engine_->counters().submitted, 4u);
  EXPECT_EQ(engine_->counters().completed, 4u);
  EXPECT_EQ(engine_->in_flight(), 0u);
}

TEST_F(NoWorkers, AStatIsRepeated) {
  MAKE_ENGINE();
  WriteContent("file", 10);
  EXPECT_EQ(Stat("./file").stat.size, 10u);
  EXPECT_STREQ(engine_->name(), "threads");
}

TEST_F(NoWorkers, AnyStepOfManyAtATimeMayBeTheOneAndNoDescriptorIsLost) {
  const std::size_t without = OpenDescriptors();
  for (const Step step : {Step::kOpen, Step::kStatBefore, Step::kRead, Step::kStatAfter}) {
    MAKE_ENGINE(step);
    const std::string bytes = WriteContent("file", 5000);
    const std::size_t before = OpenDescriptors();
    constexpr std::size_t kReads = 40;
    std::vector<AlignedBuffer> buffers;
    std::size_t good = 0;
    for (std::size_t i = 0; i < kReads; ++i) {
      FileReadRequest request;
      request.root_fd = root();
      request.path = "file";
      request.buffer = buffers.emplace_back(8192).data();
      request.capacity = 8192;
      engine_->SubmitFileRead(std::move(request), [&good, &bytes, at = buffers.back().data()](const FileReadResult& result) {
        good += result.error == 0 && std::string_view(reinterpret_cast<const char*>(at), result.bytes) == bytes ? 1 : 0;
      });
    }
    Drain();
    EXPECT_EQ(good, kReads) << static_cast<int>(step);
    EXPECT_EQ(OpenDescriptors(), before + 1) << "the threads' own of the event";
    engine_.reset();
    ASSERT_TRUE(Becomes([&] { return OpenDescriptors() == without; }));  // the last of the threads closes its own
  }
}

TEST_F(NoWorkers, TransfersGoOnWhereTheyWere) {
  int turn = 0;
  faults_ = std::make_unique<ScriptedFaults>([&turn, loop = std::this_thread::get_id()](Step, long result) {
    if (std::this_thread::get_id() != loop) return result;
    return ++turn % 2 == 1 ? std::min(result, 1000L) : -ECANCELED;
  });
  MakeEngineOrSkip(EngineKind::kUring, {.faults = faults_.get()});
  if (IsSkipped()) return;
  const UniqueFd file(::open(Path("file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  std::string one = Content("one", 1500), two = Content("two", 2500);
  const iovec out[] = {{one.data(), one.size()}, {two.data(), two.size()}};
  const IoResult written = Writev(file.get(), out, 0);
  EXPECT_EQ(written.error, 0);
  EXPECT_EQ(written.bytes, 4000u);
  std::string back(4000, 'x');
  const iovec in{back.data(), back.size()};
  EXPECT_EQ(Readv(file.get(), {&in, 1}, 0).bytes, 4000u);
  EXPECT_TRUE(back == one + two);
  EXPECT_EQ(turn, 2);
}

// As the kernel does it. Without threads requests end at once; threads are looked for again each time.
TEST_F(NoWorkers, AProcessLimitIsMet) {
  const std::string bytes = WriteContent("file", 5000);
  std::filesystem::permissions(Path(""), std::filesystem::perms(0755));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto run = [&] {
      constexpr uid_t kOther = 65530;
      if (::geteuid() == 0 && ::setresuid(kOther, kOther, kOther) != 0) return 77;
      rlimit limit{};
      ::getrlimit(RLIMIT_NPROC, &limit);
      const rlimit none{0, limit.rlim_max};
      if (::setrlimit(RLIMIT_NPROC, &none) != 0) return 77;
      auto made = MakeEngine(EngineKind::kUring, {});
      if (!made.ok()) return 77;
      engine_ = std::move(made).value();
      for (int i = 0; i < 3; ++i) {
        if (Read("file").result.error != EAGAIN) return 1;
        if (Stat("file").error != EAGAIN) return 2;
      }
      if (std::string_view(engine_->name()) != "threads") return 3;
      ::setrlimit(RLIMIT_NPROC, &limit);
      if (Read("file").bytes != bytes) return 4;
      if (Stat("file").stat.size != bytes.size()) return 5;
      engine_.reset();
      return 0;
    };
    ::_exit(run());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no io_uring here, or no limit of processes";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tierd::io
