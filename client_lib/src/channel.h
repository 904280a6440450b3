// The conversation with the daemon over one SOCK_SEQPACKET socket: many threads ask, one of those that wait receives for all (the leader),
// and hands over to another waiter when its own answers are there. Answers are matched by request id; an answer nobody waits for any more is
// dropped, its descriptors closed (HAZARDS 2.3).
//
// Thread rule: any thread, but Open, TryClose and Abandon, which belong to the owner. The socket is watched for being swapped under us: an application that closes
// all descriptors (close_range(3, ~0)) may get our number for a file of its own.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client_lib/abi/messages.h"
#include "client_lib/src/mutex.h"

namespace tierd::client {

struct Group;

// One question on its way. Lives on the stack of whoever asks, between Register and Wait's return.
struct Waiter {
  std::uint64_t id = 0;
  abi::MessageType answer{};  // the type of message that answers it
  bool done = false;
  int fd = -1;                // that came with the answer; the asker's to close
  union {
    abi::FetchReply fetch;
    abi::AdviseReply advise;
    abi::IndexEntry index;
    abi::SegmentEntry segment;
  };
  Group* group = nullptr;
  Waiter* next = nullptr;
  Waiter() : fetch() {}
};

// The questions that one thread waits for together.
struct Group {
  std::uint32_t pending = 0;
  bool asleep = false;
  std::atomic<std::uint32_t> signal{0};  // futex: kWoken or kLead
  Group* previous = nullptr;
  Group* next = nullptr;
};

enum class SendOutcome : std::uint8_t { kSent, kBusy, kDead };
enum class WaitOutcome : std::uint8_t { kAll, kTimeout, kDead };

class Channel {
 public:
  struct Listener {
    // Receives what the daemon says unasked (kSources). Called by the leader, without locks of the channel.
    void (*on_sources)(void* context, const std::byte* entries, std::size_t bytes, std::uint32_t count);
    // Whether the daemon's loop stands still by other evidence than its silence: then nobody waits longer. Called by who waits, at least once in a receive slice;
    // takes no locks.
    bool (*hangs)(void* context);
    void* context;
  };

  // Takes the connected, greeted socket over; `version` is the agreed one. False: no memory (the socket is closed).
  bool Open(int fd, std::uint16_t version, Listener listener);
  // Ends the conversation for everybody here: whoever waits notices within a receive slice (50 ms). The socket itself is left alone: shutdown(2) would act
  // on the descriptor of forked children too, which vouches for the views that they inherited (HAZARDS 2.6).
  void End() { Die(false); }
  // Whether the peer has closed its end, by a look that does not wait. Ends the conversation then.
  bool PeerGone();
  // Closes the descriptor if it is still ours, and frees what the channel holds; false while somebody is still inside.
  bool TryClose();
  // In a forked child: another process's conversation. Gives up the descriptor (if `close_socket`) and every lock without looking at them.
  void Abandon(bool close_socket);

  bool dead() const { return dead_.load(std::memory_order_acquire); }
  // Dead because the peer broke the rules, not because it went away.
  bool protocol_error() const { return protocol_error_.load(std::memory_order_relaxed); }
  // Socket and every buffer were there a moment ago: false when the descriptor is no longer our socket.
  bool StillOurs() const;
  std::uint16_t version() const { return version_; }

  // Gives `waiters` ids and puts them into `group`.
  void Register(Group& group, Waiter* waiters, std::size_t count);
  // One datagram; waits for room in the socket until `deadline_ns` (CLOCK_MONOTONIC), or until the daemon hangs.
  SendOutcome Send(const void* datagram, std::size_t bytes, std::int64_t deadline_ns);
  // Until every waiter of the group is answered, the deadline (kTimeout, also when the daemon hangs before it), or the end of the conversation. Afterwards none of
  // them is known to the channel.
  WaitOutcome Wait(Group& group, Waiter* waiters, std::size_t count, std::int64_t deadline_ns);

 private:
  static constexpr std::size_t kBuckets = 256;
  enum class Received : std::uint8_t { kNothing, kMessage, kEnd };

  // Waits until `deadline_ns`, but at most a receive slice.
  Received ReceiveOne(std::int64_t deadline_ns);
  bool Dispatch(std::size_t bytes, int* fds, int fd_count, bool truncated);
  template <typename Entry>
  bool DispatchAnswers(const abi::MessageHeader& header, Entry Waiter::* field, int* fd);
  Waiter* Take(std::uint64_t id, abi::MessageType answer);
  void Forget(Waiter* waiters, std::size_t count);
  void Die(bool protocol_error);
  void HandOver();
  bool Hangs() const { return listener_.hangs(listener_.context); }

  Mutex mutex_;
  // Constant between Open and Close.
  int fd_;
  dev_t socket_dev_;
  ino_t socket_ino_;
  std::uint16_t version_;
  Listener listener_;
  std::byte* buffer_;  // of the leader
  // Guarded by mutex_.
  bool receiving_;
  std::uint32_t inside_;  // threads between Register and the end of Wait
  std::uint64_t next_id_;
  Waiter* buckets_[kBuckets];
  Group* waiting_;  // groups asleep
  // Any thread.
  std::atomic<bool> dead_;
  std::atomic<bool> protocol_error_;
};

}  // namespace tierd::client
