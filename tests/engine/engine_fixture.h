// A whole Engine in the test's process: real tiers in a temporary directory, a temporary directory as source, the test as the server. What the
// source and the SSD are asked for can be counted, held and delayed (SteppedFaults).
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <boost/asio/io_context.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "policies/registry.h"
#include "tests/source/temp_tree.h"
#include "tierd/base/clock.h"
#include "tierd/engine/engine.h"
#include "tierd/io/engine_faults.h"

namespace tierd::engine {

// The real one, and ahead of it as far as a test says.
class ForwardClock final : public Clock {
 public:
  std::int64_t MonotonicNs() const override { return system_.MonotonicNs() + ahead_ns; }
  std::int64_t RealtimeNs() const override { return system_.RealtimeNs() + ahead_ns; }
  std::int64_t PreciseNs() const override {
    const std::int64_t stands = stands_ns_;
    return (stands != 0 ? stands : system_.PreciseNs()) + ahead_ns;
  }
  std::int64_t AsleepNs() const override { return asleep_ns; }

  // From now on PreciseNs moves only with Pass, so that what is measured does not depend on how busy the machine is.
  void StopPrecise() { stands_ns_ = system_.PreciseNs(); }
  void Pass(std::int64_t ns) { stands_ns_ += ns; }

  std::atomic<std::int64_t> ahead_ns = 0;
  std::atomic<std::int64_t> asleep_ns = 5'000'000'000;

 private:
  SystemClock system_;
  std::atomic<std::int64_t> stands_ns_ = 0;  // 0: PreciseNs is the machine's
};

// Counts the steps of an engine's requests; a step may be held until released, or take longer.
class SteppedFaults final : public io::EngineFaults {
 public:
  long Outcome(io::Step step, long result) override {
    ++counts_[static_cast<std::size_t>(step)];
    if (const int error = open_error; step == io::Step::kOpen && error != 0) return -error;
    if (const int us = delay_us[static_cast<std::size_t>(step)]; us > 0) {
      if (clock != nullptr) clock->Pass(std::int64_t{us} * 1000);
      else std::this_thread::sleep_for(std::chrono::microseconds(us));
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (held_ != step) return result;
    ++waiting;
    released_.wait(lock, [&] { return held_ != step; });
    --waiting;
    return released_with != 0 ? -released_with : result;
  }
  unsigned SubmitLimit(unsigned pending) override { return pending; }
  unsigned CompletionEntries() override { return 0; }

  // Requests that come to this step stay there until Release; those held at another one go on.
  void Hold(io::Step step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_ = step;
    released_.notify_all();
  }
  void Release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_ = io::Step::kClose;  // never asked about
    released_.notify_all();
  }
  std::uint64_t count(io::Step step) const { return counts_[static_cast<std::size_t>(step)]; }

  std::array<std::atomic<int>, 9> delay_us{};
  ForwardClock* clock = nullptr;  // delays pass on this one, which stands otherwise; null: the step takes as long
  std::atomic<int> open_error = 0;  // errno of opens while it is set
  std::atomic<int> waiting = 0;
  std::atomic<int> released_with = 0;  // errno of those that were held

 private:
  std::array<std::atomic<std::uint64_t>, 9> counts_{};
  std::mutex mutex_;
  std::condition_variable released_;
  io::Step held_ = io::Step::kClose;
};

class EngineTest : public testing::Test, private ReplySink {
 protected:
  static constexpr SessionId kReader{1};

  EngineTest() {
    // Anybody may read the files of a test that says nothing else, so they are confirmed by stats.
    ::umask(022);
    ::chmod(tree_.path().c_str(), 0755);
    options_.sources.push_back({});
    SourceOptions& source = options_.sources.back();
    source.path = tree_.path();
    source.name = "data";
    source.racy_window_ms = 0;
    source.warm = false;
    source.demand_timeout_ms = 30'000;  // however busy the machine is; what a reader does who has waited too long is asked for by name
    source.engine = EngineChoice::kThreads;  // a held step holds a worker, not the loop
    options_.ram.capacity_bytes = 64 << 20;
    options_.ram.segment_bytes = 16 << 20;
    options_.ram.pages = PagesChoice::k4KiB;
    options_.ram.seal = ram::SegmentSeal::kShrink;  // memfds that can be punched
    options_.ram.min_available_bytes = 0;
    options_.ssd.engine = EngineChoice::kThreads;
    options_.ssd.capacity_bytes = 128 << 20;
    options_.ssd.min_free_bytes = 0;
    options_.ssd.min_free_inodes = 0;
    options_.source_faults = &source_io_;
    options_.ssd_faults = &ssd_io_;
  }
  ~EngineTest() override { StopEngine(); }

  void UseSsd() { options_.ssd.directory = cache_.path() + "/ssd"; }
  SourceOptions& source_options() { return options_.sources.back(); }

  // As a client may meet it: records of the SSD are still to come.
  void BeginEngine() {
    engine_ = std::make_unique<Engine>(loop_, clock_, registry_, options_);
    const Status status = engine_->Start(*this);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  void StartEngine() {
    BeginEngine();
    ASSERT_TRUE(RunUntil([&] { return !engine_->recovering(); }));
  }
  void StopEngine() {
    source_io_.Release();
    ssd_io_.Release();
    if (engine_) engine_->Stop(2000);
    engine_.reset();
  }
  Engine& engine() { return *engine_; }
  const policies::Registry& registry() const { return registry_; }
  SourceUnit& unit() { return *engine_->sources().front(); }

  // Turns the loop until the condition holds; false after `ms`.
  template <typename Condition>
  bool RunUntil(Condition condition, int ms = 60'000) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    loop_.restart();
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      loop_.run_for(std::chrono::milliseconds(1));
      loop_.restart();
    }
    return true;
  }

  // How many handlers the loop ran in that time.
  std::size_t HandlersIn(int ms) {
    loop_.restart();
    return loop_.run_for(std::chrono::milliseconds(ms));
  }

  // Of the handlers that are ready, so many at most; how many it ran.
  std::size_t RunReady(std::size_t most) {
    loop_.restart();
    std::size_t ran = 0;
    while (ran < most && loop_.poll_one() != 0) ++ran;
    return ran;
  }

  std::string Write(const std::string& name, const std::string& bytes) {
    tree_.Write(name, bytes);
    return name;
  }
  static std::string Bytes(const std::string& name, std::size_t count, int version = 1) {
    std::string bytes;
    std::uint64_t state = std::hash<std::string>{}(name) * 31 + static_cast<std::uint64_t>(version);
    while (bytes.size() < count) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      bytes.append(reinterpret_cast<const char*>(&state), sizeof state);
    }
    bytes.resize(count);
    return bytes;
  }
  std::vector<std::string> MakeFiles(int count, std::size_t bytes) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back("d" + std::to_string(i % 8) + "/f" + std::to_string(i));
    for (const std::string& name : names) Write(name, Bytes(name, bytes));
    return names;
  }

  // Asks as a client does; the answer is in replies() once it came.
  std::uint64_t Ask(const std::string& path, abi::FetchOp op = abi::FetchOp::kChunk, std::uint32_t chunk = 0, SessionId session = kReader, std::uint8_t flags = 0) {
    return AskOf(unit(), path, op, chunk, session, flags);
  }
  std::uint64_t AskOf(SourceUnit& unit, const std::string& path, abi::FetchOp op, std::uint32_t chunk, SessionId session, std::uint8_t flags) {
    FetchRequest request;
    request.session = session;
    request.path = path;
    request.entry.op = static_cast<std::uint8_t>(op);
    request.entry.flags = flags;
    request.entry.chunk = chunk;
    request.entry.request_id = ++last_request_;
    engine_->Fetch(unit, request);
    engine_->EndTurn();
    return last_request_;
  }
  struct Answer {
    abi::FetchReply reply{};
    std::string bytes;  // of a frame, copied when the answer came
    abi::FetchStatus status() const { return static_cast<abi::FetchStatus>(reply.status); }
    abi::Tier tier() const { return static_cast<abi::Tier>(reply.tier); }
  };
  std::map<std::uint64_t, Answer>& answers() { return answers_; }
  Answer Fetch(const std::string& path, abi::FetchOp op = abi::FetchOp::kChunk, std::uint32_t chunk = 0) {
    return FetchOf(unit(), path, op, chunk);
  }
  Answer FetchOf(SourceUnit& unit, const std::string& path, abi::FetchOp op = abi::FetchOp::kChunk, std::uint32_t chunk = 0) {
    const std::uint64_t id = AskOf(unit, path, op, chunk, kReader, 0);
    EXPECT_TRUE(RunUntil([&] { return answers_.contains(id); })) << path;
    Answer answer = answers_[id];
    answers_.erase(id);
    return answer;
  }
  // Of one path; the number of known files affected.
  std::uint64_t Advise(abi::AdviseOp op, const std::string& path) {
    std::uint64_t affected = 0;
    engine_->Advise(unit(), op, path, false, [&](int error, std::uint64_t files) {
      EXPECT_EQ(error, 0);
      affected = files;
    });
    return affected;
  }
  // A session comes and goes, in a handler as they do: while the loop rests somebody else looks at their pages (Heart).
  void AddSession(const abi::SessionPage* page) {
    const auto handler = engine_->CountHandler("session");
    engine_->ram().leases().Add(page);
  }
  void RemoveSession(const abi::SessionPage* page) {
    const auto handler = engine_->CountHandler("session");
    engine_->ram().leases().Remove(page);
  }
  void NoteEntry(SessionId session, std::uint64_t ring_entry) {
    const Engine::RingAccess access{session, ring_entry};
    engine_->OnAccesses({&access, 1});
  }
  // As the access ring says it: the bytes of that answer were read (again).
  void NoteRead(const Answer& answer) {
    NoteEntry(kReader, std::uint64_t{answer.reply.ordinal} | std::uint64_t{answer.reply.generation & 0xffu} << 32 | std::uint64_t{answer.reply.tier} << 52);
    engine_->EndTurn();
  }
  FileId FileOf(const std::string& path) { return engine_->catalogue().Find(engine_->catalogue().KeyOf(unit().wire_id, path)); }
  ObjectId ObjectOf(const std::string& path, std::uint32_t chunk = 0) {
    const FileId file = FileOf(path);
    return file == kNoFile ? kNoObject : engine_->catalogue().ObjectOf(file, chunk);
  }
  bool InRam(const std::string& path) { return ObjectOf(path) != kNoObject && engine_->placement().InRam(ObjectOf(path)); }
  bool OnSsd(const std::string& path) { return ObjectOf(path) != kNoObject && engine_->placement().OnSsd(ObjectOf(path)); }
  JobStatus WaitForJob(std::uint64_t id) {
    EXPECT_TRUE(RunUntil([&] { return engine_->jobs().Find(id)->ended_ns != 0; }));
    return *engine_->jobs().Find(id);
  }

  source::TempTree tree_;
  source::TempTree cache_{source::TempTree::MemoryDir()};  // how long an SSD takes is for a test to say, not for what else its device does (F08)
  ForwardClock clock_;
  SteppedFaults source_io_;
  SteppedFaults ssd_io_;
  EngineOptions options_;

 private:
  void OnFetchReply(SessionId, const abi::FetchReply& reply) override {
    Answer& answer = answers_[reply.request_id];
    EXPECT_EQ(answer.reply.status, 0) << "two answers to request " << reply.request_id;
    answer.reply = reply;
    if (answer.status() != abi::FetchStatus::kFrame) return;
    const abi::Location at = abi::DecodeLocation(reply.location);
    const ram::Segment* segment = engine_->ram().FindSegment(at.segment);
    ASSERT_NE(segment, nullptr);
    answer.bytes.assign(reinterpret_cast<const char*>(segment->data()) + at.offset, reply.length);
  }

  boost::asio::io_context loop_;
  policies::Registry registry_;
  std::unique_ptr<Engine> engine_;
  std::uint64_t last_request_ = 0;
  std::map<std::uint64_t, Answer> answers_;
};

}  // namespace tierd::engine
