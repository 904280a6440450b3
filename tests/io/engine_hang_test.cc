// A source that hangs as parallel file systems do: requests without an answer, that no signal ends. Skipped without FUSE.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/io/engine_test_base.h"
#include "tests/pfs_sim/rig.h"

namespace tierd::io {
namespace {

class Hang : public BothEngines {
 protected:
  void StartRig() {
    std::string why;
    rig_ = pfs_sim::Rig::Start({}, &why);
    if (rig_ == nullptr) GTEST_SKIP() << why;
    mount_.Reset(::open(rig_->mount().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(mount_.valid());
  }
  void TearDown() override {
    if (rig_ != nullptr) rig_->Control("release");
    engine_.reset();
    mount_.Reset();
    rig_.reset();
  }
  void Fill(const std::string& prefix, int count) {
    for (int i = 0; i < count; ++i) {
      const std::string name = prefix + std::to_string(i);
      const UniqueFd file(::open((rig_->backing() + "/" + name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
      const std::string bytes = Content(name, kSize);
      ASSERT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
  }
  void Submit(const std::string& name, std::byte* buffer) {
    FileReadRequest request;
    request.root_fd = mount_.get();
    request.path = name;
    request.buffer = buffer;
    request.capacity = kSize;
    engine_->SubmitFileRead(std::move(request), [this, name, buffer](const FileReadResult& result) {
      EXPECT_EQ(result.error, 0) << name;
      const std::string_view seen(reinterpret_cast<const char*>(buffer), result.bytes);
      EXPECT_TRUE(seen == Content(name, kSize)) << name;
      ++done_;
    });
  }
  void SubmitAll(const std::string& prefix, int count, const AlignedBuffer& memory) {
    for (int i = 0; i < count; ++i) Submit(prefix + std::to_string(i), memory.data() + static_cast<std::size_t>(i) * kSize);
    engine_->Flush();
  }
  bool Await(int done) {
    while (done_ < done) {
      if (engine_->Wait(kPatienceMs, 100) == 0) return false;
    }
    return true;
  }
  // Until `count` requests hang at the source.
  void AwaitHung(std::uint64_t count) {
    while (rig_->Counters().hung < count) engine_->Wait(1, 100);
  }

  static constexpr std::size_t kSize = 3000;
  std::unique_ptr<pfs_sim::Rig> rig_;
  UniqueFd mount_;
  int done_ = 0;
};

#define START_RIG()          \
  do {                       \
    StartRig();              \
    if (IsSkipped()) return; \
  } while (0)

TEST_P(Hang, OthersGoOnAfterCompensationAndTheHungArriveLate) {
  START_RIG();
  MAKE_ENGINE({.depth = 8, .workers = 8, .max_replacements = 8});
  Fill("good", 60);
  Fill("stuck", 8);
  rig_->Control("fault add op=read path=stuck* errno=hang every=1");
  const AlignedBuffer stuck(8 * kSize);
  const AlignedBuffer good(60 * kSize);
  SubmitAll("stuck", 8, stuck);
  AwaitHung(8);
  SubmitAll("good", 60, good);
  EXPECT_EQ(engine_->Wait(100, 100), 0U) << "every slot hangs";
  EXPECT_EQ(engine_->OlderThan(1'000'000), 8U);

  engine_->CompensateHung(4);
  engine_->Flush();
  EXPECT_TRUE(Await(60));
  EXPECT_EQ(engine_->in_flight(), 8U);

  rig_->Control("fault clear");
  rig_->Control("release");
  EXPECT_TRUE(Await(68));
  EXPECT_EQ(engine_->in_flight(), 0U);
  SubmitAll("good", 60, good);
  EXPECT_TRUE(Await(128));
}

TEST_P(Hang, DestructionDoesNotWait) {
  START_RIG();
  for (const char* op : {"open", "read", "getattr"}) {
    MAKE_ENGINE({.depth = 16, .workers = 16});
    Fill("stuck", 16);
    rig_->Control(std::string("fault add op=") + op + " path=stuck* errno=hang every=1");
    // Late answers write here, after the engine is gone.
    AlignedBuffer memory(16 * kSize);
    SubmitAll("stuck", 16, memory);
    AwaitHung(std::string(op) == "getattr" ? 1 : 16);
    const auto start = std::chrono::steady_clock::now();
    engine_.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << op;
    rig_->Control("fault clear");
    rig_->Control("release");
    memory.Abandon();
  }
  EXPECT_EQ(done_, 0);
}

TEST_P(Hang, ASourceThatHangsLeavesTheOtherEngineItsWorkers) {
  START_RIG();
  MAKE_ENGINE({.depth = 64, .workers = 16});
  std::unique_ptr<IoEngine> other = std::move(engine_);
  MAKE_ENGINE({.depth = 64, .workers = 16});
  Fill("stuck", 40);
  rig_->Control("fault add op=read path=stuck* errno=hang every=1");
  const AlignedBuffer memory(40 * kSize);
  SubmitAll("stuck", 40, memory);
  AwaitHung(16);
  std::swap(engine_, other);
  WriteContent("local", 100);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Read("local").bytes == Content("local", 100));
  std::swap(engine_, other);
  rig_->Control("fault clear");
  rig_->Control("release");
  EXPECT_TRUE(Await(40));
  other.reset();
}

TEST_P(Hang, TransfersThatWorkersDoAreAllAnnounced) {
  START_RIG();
  MAKE_ENGINE({.depth = 256, .workers = 64});
  const std::string bytes = Content("big", 4 << 20);
  {
    const UniqueFd file(::open((rig_->backing() + "/big").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    ASSERT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  for (int round = 0; round < 5; ++round) {
    const UniqueFd file(::open((rig_->mount() + "/big").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(file.valid());
    std::string seen(bytes.size(), 'x');
    for (std::size_t at = 0; at < bytes.size(); at += 16384) {
      const iovec iov{seen.data() + at, 16384};
      engine_->SubmitReadv(file.get(), {&iov, 1}, at, [](IoResult result) { EXPECT_EQ(result.bytes, 16384U); });
    }
    Drain();
    EXPECT_TRUE(seen == bytes);
  }
}

TEST_P(Hang, ErrorsOfTheSourceComeThrough) {
  START_RIG();
  MAKE_ENGINE();
  Fill("file", 1);
  const AlignedBuffer memory(kSize);
  const auto read = [&] {
    FileReadRequest request;
    request.root_fd = mount_.get();
    request.path = "file0";
    request.buffer = memory.data();
    request.capacity = kSize;
    int error = -1;
    engine_->SubmitFileRead(std::move(request), [&error](const FileReadResult& result) { error = result.error; });
    Drain();
    return error;
  };
  rig_->Control("fault add op=open path=file0 errno=EIO every=1");
  EXPECT_EQ(read(), EIO);
  rig_->Control("fault clear");
  // The kernel repeats a read-ahead that failed, so that one failure would not be seen.
  rig_->Control("fault add op=read path=file0 errno=EIO every=1");
  EXPECT_EQ(read(), EIO);
  rig_->Control("fault clear");
  EXPECT_EQ(read(), 0);
}

INSTANTIATE_FOR_BOTH_ENGINES(Hang);

}  // namespace
}  // namespace tierd::io
