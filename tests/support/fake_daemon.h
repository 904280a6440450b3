// A small daemon for tests of the client library: publishes a real index and real segments, speaks the protocol, serves files of a directory,
// and misbehaves on demand. No SSD tier, no policy, no eviction of its own.
//
// Owner: a test. Serve() runs on a thread of the test process (Start) or in a forked child (FakeDaemonProcess), where it can be stopped and killed.
// The public calls lock; the knobs are atomics and may be turned at any time.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "client_lib/abi/layout.h"
#include "client_lib/abi/messages.h"
#include "tierd/base/unique_fd.h"
#include "tierd/ram/lease_scanner.h"
#include "tierd/ram/segment.h"
#include "tierd/ram/session_page.h"
#include "tierd/ram/shared_index.h"

namespace tierd::testing {

struct FakeDaemonOptions {
  std::string socket;                  // its directory is made, 0700
  std::string root;                    // the source, canonical
  std::uint64_t chunk_bytes = 1 << 20;
  std::uint64_t segment_bytes = 8 << 20;
  std::uint64_t initial_slots = 4096;
  std::uint64_t pin_cap_bytes = 64 << 20;
  std::uint32_t ttl_ms = 60'000;
  abi::Staleness staleness = abi::Staleness::kTtl;
  std::uint64_t root_ino_offset = 0;   // != 0: the source is another directory than the client's (namespace)
  bool foreign_clock = false;
  std::uint16_t answer_version = abi::kProtocolVersion;
  std::uint32_t refuse = 0;            // != 0: kRefuse with this reason
};

enum class Mischief : std::uint32_t {
  kNone,
  kSilent,            // takes requests, answers nothing
  kNoSources,         // greets, and does not say what it serves
  kLate,              // answers `late_ms` later
  kShortMessage,      // a reply cut off in the middle
  kWrongLength,       // header.bytes does not match
  kWrongMagic,
  kTooMany,           // count larger than the body
  kSurplusFd,         // a descriptor that nobody asked for
  kManyFds,           // more descriptors than fit
  kUnknownType,
  kBadLocation,       // a frame beyond the end of its segment
  kNoSegment,         // a frame in a segment that does not exist
  kStrangerFirst,     // answers for ids nobody asked for before each right one
};

class FakeDaemon {
 public:
  explicit FakeDaemon(FakeDaemonOptions options);
  ~FakeDaemon();

  // Serves on a thread until Stop (or the end of the object).
  void Start();
  void Stop();
  // Serves in the calling process, for ever.
  void Serve();

  // Puts a file (or all below the root) into RAM and the index, as a fetch would.
  void Cache(const std::string& relative);
  void CacheAll();
  // A file that exists in the cache alone, of `bytes` equal bytes.
  void CacheInvented(const std::string& relative, std::uint64_t bytes);
  // Removes a file's frames from RAM (the slot stays); they are overwritten by Recycle once nobody leases them.
  void Evict(const std::string& relative);
  void Expire(const std::string& relative);
  // Overwrites evicted frames that no lease covers; returns how many still wait.
  std::size_t Recycle();
  // The index moves to a new table.
  void Grow();
  void PublishAlias(const std::string& relative, const std::string& target);
  std::uint64_t Leases();
  // Session page number `n`, in order of arrival.
  abi::SessionPage* page(std::size_t n);
  std::size_t sessions();
  void CloseAllSockets(bool revoke);
  abi::FileKey KeyOf(const std::string& relative) const;
  const std::uint8_t* instance() const { return instance_; }

  std::atomic<Mischief> mischief{Mischief::kNone};
  std::atomic<std::uint32_t> late_ms{0};
  std::atomic<bool> heartbeat{true};
  std::atomic<std::uint32_t> bypass_reason{0};  // != 0: every fetch is bypassed
  std::atomic<std::uint32_t> fetches{0};
  std::atomic<std::uint32_t> most_fetches{0};  // that one message asked for
  std::atomic<std::uint32_t> segments_sent{0};
  std::atomic<std::uint32_t> invalidations{0};
  std::atomic<std::uint32_t> advices{0};

 private:
  struct Connection {
    UniqueFd fd;
    ram::SessionPage page;
  };
  struct Frame {
    std::uint64_t location = 0;
    std::uint64_t bytes = 0;
    abi::FileKey key;
  };
  struct Late {
    int fd;
    std::int64_t due_ns;
    std::vector<std::byte> datagram;
  };

  void Accept();
  bool Receive(Connection& connection);
  bool Handle(Connection& connection, std::span<const std::byte> datagram);
  void Greet(Connection& connection);
  void SendIndex(Connection& connection, std::uint64_t request_id);
  void SendSegment(Connection& connection, std::uint64_t request_id, std::uint64_t serial);
  void AnswerFetch(Connection& connection, std::span<const std::byte> body, std::uint32_t count);
  void AnswerAdvice(Connection& connection, std::span<const std::byte> body, std::uint32_t count);
  abi::FetchReply Fetch(const abi::FetchEntry& entry, const std::string& relative);
  abi::FetchReply List(const abi::FetchEntry& entry, const std::string& relative);
  void Reply(Connection& connection, const abi::FetchReply& reply);
  void SendLate();
  std::uint64_t Place(abi::FileKey key, std::span<const std::byte> bytes);
  std::byte* DataAt(std::uint64_t location);
  std::uint32_t Ordinal(abi::FileKey key);
  // Adds or renews the slot of a file; true when it is a file with bytes.
  bool Publish(const std::string& relative, const struct stat& st);
  std::uint64_t PublishChunk(const std::string& relative, const struct stat& st, std::uint32_t chunk);

  // Constant after construction.
  const FakeDaemonOptions options_;
  std::uint8_t instance_[16];
  std::uint8_t secret_[abi::kHashSecretBytes];
  // Guarded by mutex_.
  std::mutex mutex_;
  std::unique_ptr<ram::SharedIndex> index_;
  std::vector<std::unique_ptr<ram::IndexTable>> old_tables_;
  ram::SegmentFactory factory_{ram::SegmentOptions{.force_kind = abi::PageKind::k4KiB}};
  std::vector<ram::Segment> segments_;
  std::uint64_t used_in_last_ = 0;
  std::uint16_t next_fill_ = 1;
  std::uint64_t next_tag_ = 1;
  std::vector<Frame> limbo_;
  ram::LeaseScanner scanner_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Late> late_;
  UniqueFd listener_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
};

// A FakeDaemon in a child process.
class FakeDaemonProcess {
 public:
  explicit FakeDaemonProcess(const FakeDaemonOptions& options, Mischief mischief = Mischief::kNone);
  ~FakeDaemonProcess() { Kill(); }
  pid_t pid() const { return pid_; }
  void Pause();   // SIGSTOP
  void Resume();  // SIGCONT
  void Kill();    // SIGKILL, and waits for the end

 private:
  pid_t pid_ = -1;
};

}  // namespace tierd::testing
