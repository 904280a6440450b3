// A large file on the SSD, of which RAM has as much as its policy allows, and readers that want a little of the rest at a time.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "tests/engine/engine_fixture.h"
#include "tierd/ram/session_page.h"

namespace tierd::engine {

inline constexpr std::uint32_t kChunk = 4 * kMiB;
inline constexpr std::uint32_t kPart = 16384;

class PartsTest : public EngineTest {
 protected:
  static constexpr std::uint32_t kChunks = 12;
  static constexpr std::size_t kBytes = std::size_t{kChunks} * kChunk - 1000;

  PartsTest() {
    UseSsd();
    source_options().policy = "freeze";
    source_options().ahead = false;
    source_options().chunk_bytes = kChunk;
    options_.ram.capacity_bytes = 32 << 20;
    Write(name_, content_);
  }
  ~PartsTest() override { StopEngine(); }

  // All of it on the SSD, and of RAM as much in use as the policy allows.
  void Start() {
    source_io_.delay_us[static_cast<std::size_t>(io::Step::kRead)] = 100'000;  // the slower of the two, however busy the machine is (F08)
    StartEngine();
    const std::uint64_t job = engine().jobs().Prefetch({{&unit(), ""}}, {.ssd_only = true});
    engine().EndTurn();
    ASSERT_EQ(WaitForJob(job).verified_files, 1u);
    ASSERT_NO_FATAL_FAILURE(FillRam());
    for (std::uint32_t chunk = 1; chunk < kChunks; ++chunk) {  // whoever comes to the first one may want the next
      if (!ChunkInRam(chunk)) out_.push_back(chunk);
    }
    ASSERT_GE(out_.size(), 4u);
    source_opens_ = source_io_.count(io::Step::kOpen);
    device_bytes_ = DeviceBytes();
    transit_ = engine().counters().transit_frames;
  }
  // Until a round brings nothing that stays; what has passed through is gone then.
  void FillRam() {
    for (std::uint64_t before = 1, now = 0; before != now; now = engine().placement().ram_resident_bytes()) {
      before = engine().placement().ram_resident_bytes();
      for (std::uint32_t i = 0; i < kChunks; ++i) {  // in no order that is read ahead of
        const std::uint32_t chunk = i * 5 % kChunks;
        ASSERT_EQ(Fetch(name_, abi::FetchOp::kChunk, chunk).status(), abi::FetchStatus::kFrame) << chunk;
        (void)engine().ram().ReclaimLimbo(4096);
      }
    }
    ASSERT_TRUE(RunUntil([&] { return engine().fetcher().idle(); }));
  }
  bool ChunkInRam(std::uint32_t chunk) { return engine().placement().InRam(ObjectOf(name_, chunk)); }
  std::uint64_t AskPart(std::uint32_t chunk, std::uint32_t begin, std::uint32_t bytes, std::uint8_t flags = 0) {
    FetchRequest request;
    request.session = kReader;
    request.path = name_;
    request.entry.op = static_cast<std::uint8_t>(abi::FetchOp::kChunk);
    request.entry.flags = static_cast<std::uint8_t>(abi::kFetchPart | flags);
    request.entry.chunk = chunk;
    request.entry.request_id = ++id_;
    request.part = {begin, bytes};
    engine().Fetch(unit(), request);
    engine().EndTurn();
    return id_;
  }
  Answer Await(std::uint64_t id) {
    EXPECT_TRUE(RunUntil([&] { return answers().contains(id); }));
    (void)RunReady(64);  // who is answered at once turns it, too: a loop that nobody runs for long has stood (HAZARDS 2.11)
    auto answer = answers().extract(id);  // hundreds of them would be gigabytes
    return answer.empty() ? Answer{} : std::move(answer.mapped());
  }
  Answer FetchPart(std::uint32_t chunk, std::uint32_t begin, std::uint32_t bytes, std::uint8_t flags = 0) { return Await(AskPart(chunk, begin, bytes, flags)); }
  void ExpectHas(const Answer& answer, std::uint32_t chunk, std::uint32_t begin, std::uint32_t bytes) {
    ASSERT_EQ(answer.status(), abi::FetchStatus::kFrame) << "reason " << int{answer.reply.reason};
    ASSERT_LE(answer.reply.begin, begin);
    ASSERT_GE(answer.reply.begin + answer.reply.length, begin + bytes);
    EXPECT_TRUE(answer.bytes == std::string_view(content_).substr(std::size_t{chunk} * kChunk + answer.reply.begin, answer.reply.length)) << chunk << " " << begin;
  }
  std::uint64_t DeviceBytes() { return engine().ssd()->counters().device_read_bytes; }
  std::uint64_t HeaderBytes(std::uint32_t chunk) { return engine().catalogue().object(ObjectOf(name_, chunk)).ssd.header_bytes(); }
  // Turns the first byte of that text over, wherever it is on the SSD.
  bool Damage(const std::string& text) {
    for (const auto& file : std::filesystem::directory_iterator(options_.ssd.directory)) {
      if (file.path().filename().string().rfind("regions-", 0) != 0) continue;
      std::fstream regions(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      const std::string all((std::istreambuf_iterator<char>(regions)), {});
      const std::size_t at = all.find(text);
      if (at == std::string::npos) continue;
      regions.clear();
      regions.seekp(static_cast<std::streamoff>(at));
      regions.put(static_cast<char>(text[0] ^ 1));
      return regions.flush().good();
    }
    return false;
  }
  // Keeps every frame of that chunk.
  void LeaseChunk(std::uint32_t chunk) {
    AddSession(page());
    page()->lease_high = 1;
    page()->leases[0].store(abi::EncodeLease(abi::LeaseKeyOf(engine().catalogue().KeyOf(ObjectOf(name_, chunk))), 0));
  }
  abi::SessionPage* page() { return session_->page(); }

  const std::string name_ = "large";
  const std::string content_ = Bytes(name_, kBytes);
  std::vector<std::uint32_t> out_;  // chunks that RAM does not have
  std::uint64_t source_opens_ = 0, device_bytes_ = 0, transit_ = 0;

 private:
  std::uint64_t id_ = 1'000'000;
  Result<ram::SessionPage> session_ = ram::SessionPage::Create({});  // gone behind the engine
};

}  // namespace tierd::engine
