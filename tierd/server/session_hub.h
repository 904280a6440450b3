// The clients: accepts connections, speaks PROTOCOL.md, drains access rings, adds up counters, and knows when a session has really ended
// (HAZARDS 2.5: when its process *and* every inheritor of its socket are gone).
//
// Owner: main.cc. Loop thread only. It decides nothing about data: requests go to the engine, whose replies it sends.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tierd/base/unique_fd.h"
#include "tierd/engine/counters.h"
#include "tierd/engine/engine.h"
#include "tierd/engine/out_of_memory.h"
#include "tierd/server/descriptor_closer.h"
#include "tierd/server/message_reader.h"
#include "tierd/server/message_writer.h"
#include "tierd/server/namespace_watch.h"
#include "tierd/server/ring_drain.h"
#include "tierd/server/seqpacket.h"

namespace tierd::server {

struct SessionOptions {
  std::string socket_path;
  std::uint32_t max_sessions = 4096;    // connected; more are refused with EMFILE; 56 KiB of shared memory each
  std::int64_t hello_ns = 2'000'000'000;    // from connect to hello; our library says hello at once
  std::int64_t unread_ns = 30'000'000'000;  // replies wait, and the client reads none of them
};

struct SessionTotals {
  std::uint64_t sessions = 0;           // connected
  std::uint64_t lingering = 0;          // socket gone, process alive: leases still count
  std::uint64_t refused = 0;
  std::array<std::uint64_t, kTurnedAways> turned_away{};
  std::uint64_t protocol_errors = 0;
  std::uint64_t leases = 0;             // seen in use now
  std::uint64_t frozen_leases = 0;      // held over a fork
  std::uint64_t pinned_bytes = 0;       // leased bytes as the clients tell them
  std::uint64_t added_bytes = 0;        // what the library has added to the clients' own memory, as they tell
  std::uint64_t added_budget = 0;       // what it may add in all of them together
};

class SessionHub final : public engine::ReplySink {
 public:
  SessionHub(boost::asio::io_context& loop, engine::Engine& engine, const Clock& clock, SessionOptions options);
  ~SessionHub() override;

  // Binds the socket. The runtime directory has been prepared.
  Status Listen();
  // Ends all connections: clients go on with the source. Their leases count until this object dies: frames are still filled while tiers stop.
  void Close();

  void OnFetchReply(engine::SessionId session, const abi::FetchReply& reply) override;

  // Engine hooks: sends what was gathered and is awaited; drains rings, looks for ended sessions, sends what was kept.
  void FlushReplies();
  void OnTimer();

  // Tells the engine what clients read up to now.
  void DrainRings();
  // Application-level reads of all sessions that ever were, up to now.
  engine::ReadTotals Totals();
  SessionTotals Sessions() const;

  std::function<void(std::string)> log;

  // Of one process. Its leases may count for as long as it lives (HAZARDS 2.5), so that what it leaves behind is kept; that is nobody else's loss.
  static constexpr std::uint32_t kMostLeftBehind = 64;
  // Connections of one process. A process needs one; a program that embeds several has a few.
  static constexpr std::uint32_t kMostOfProcess = 256;
  // Replies that clients have not read yet. A thread of our library waits for 256 replies at most,
  // 27 KB. Past the limit of all, the client with the most unread bytes goes.
  static constexpr std::size_t kMostUnreadBytes = std::size_t{4} << 20;
  static constexpr std::size_t kMostUnreadBytesInAll = std::size_t{64} << 20;
  // What unanswered requests take, as estimated. Past it a request is answered `bypass` at once.
  static constexpr std::size_t kMostAskedBytes = std::size_t{16} << 20;
  static constexpr std::size_t kMostAskedBytesInAll = std::size_t{128} << 20;

 private:
  struct Session;
  struct Process {  // of clients
    std::uint32_t sessions = 0;
    std::uint32_t left_behind = 0;  // of them: no conversation any more, and not ended
  };

  void Accept();
  void AcceptSome();
  void AcceptLater();
  void Welcome(UniqueFd fd);
  // A silent client may go for it. False: there is no room.
  bool MakeRoomFor(std::uint32_t pid);
  void TurnAway(UniqueFd fd, TurnedAway why);
  void Count(TurnedAway why) { ++turned_away_[static_cast<std::size_t>(why)]; }
  // The oldest connection (of `pid`, if it is not 0) that has said nothing yet goes.
  bool EvictSilent(std::uint32_t pid);
  void EndSilent();
  // Closes a client's socket, whose queue may hold what the client put there.
  void Drop(UniqueFd socket);
  void CloseSocket(Session& session);
  // A datagram with descriptors is at the head of its queue: nothing is read from it any more.
  void StopReading(Session& session);
  void LookAtUnreadable();
  void LeaveBehind(Session& session);
  void Forget(const Session& session);
  void WatchSocket(Session& session);
  void WatchProcess(Session& session);
  // Reads a bounded number of datagrams.
  void Receive(Session& session);
  // The same of a session that was cut off.
  void Discard(Session& session);
  bool Handle(Session& session, std::span<const std::byte> datagram);
  bool OnHello(Session& session, const abi::MessageHeader& header, std::span<const std::byte> datagram);
  bool OnFetch(Session& session, const abi::MessageHeader& header, std::span<const std::byte> datagram);
  bool OnAdvise(Session& session, const abi::MessageHeader& header, std::span<const std::byte> datagram);
  void Bring(Session& session, std::vector<engine::Jobs::Item> items, const std::vector<std::uint64_t>& request_ids, engine::Jobs::PrefetchOptions options);
  bool OnGetSegment(Session& session, std::span<const std::byte> datagram);
  bool OnGetIndex(Session& session, std::span<const std::byte> datagram);
  // The finished message; no entry, nothing to send. A source whose mounts this kernel cannot tell apart is shown to clients in another mount namespace as a
  // directory that they do not have.
  std::span<const std::byte> WriteSources(const Session& session, MessageWriter& writer);
  // Clients look at the mounts below the sources again: those of `space`.
  void DoubtMounts(std::uint32_t space);
  bool Refuse(Session& session, TurnedAway why, std::uint32_t reason, const char* text);
  bool Send(Session& session, std::span<const std::byte> datagram, std::span<const int> fds = {});
  bool Enqueue(Session& session, std::span<const std::byte> datagram, std::span<const int> fds);
  // Ends conversations with clients that leave too many replies unread.
  void MakeRoomForReply(Session& session, std::size_t bytes);
  void EndUnread();
  void DropQueue(Session& session);
  // Whether one more request, with a path of so many bytes, may wait for its answer.
  bool MayAsk(Session& session, std::size_t path_bytes);
  void NoteAnswered(Session& session);
  template <typename Reply>
  void AddReply(std::uint32_t session_id, MessageWriter Session::* gathered, const Reply& reply);
  void SendReplies(Session& session, MessageWriter Session::* gathered);
  void SendGathered(std::vector<std::uint32_t>& sessions, bool Session::* listed);
  void WatchForRoom(Session& session);
  void SendQueued(Session& session);
  // Ends the conversation from our side: the client sees the end of it and connects anew. The socket is kept until all who hold its other end have
  // closed it: it alone tells whether a forked child still looks at inherited views.
  void CutOff(Session& session);
  // The other end is closed in every process; the page stays until its process is gone too, or has left it.
  void HangUp(Session& session);
  // `end_of_file`: nothing more was there to read, else the socket has failed.
  void HangUpAfter(Session& session, bool end_of_file);
  void MaybeEnd(Session& session);
  bool ProcessGone(Session& session) const;
  void AddRing(Session& session);
  void RemoveRing(Session& session);
  void DrainRing(Session& session);
  // All of them, at most so many entries. True: there are more.
  bool DrainSome(std::size_t most);
  void DrainBefore(Session& session);
  void DrainInTurns();
  bool ReadRings(std::size_t most);
  void AddCounters(Session& session, engine::ReadTotals& totals);
  // Tells each client what the library may add to its memory: what it has added, and its share of what is left of the job's budget.
  void DivideAddedMemory();
  void LookForUntold(Session& session);
  std::uint64_t AddedBudget() const;
  // The log is told of the first fallback of each reason (C4).
  void TellFallbacks();
  void NoteAround(const engine::ReadTotals& totals);
  void Log(std::string line) const {
    if (log) log(std::move(line));
  }

  // Constant after construction.
  boost::asio::io_context& loop_;
  engine::Engine& engine_;
  const Clock& clock_;
  const SessionOptions options_;
  // Owned by the loop thread.
  std::unique_ptr<boost::asio::posix::stream_descriptor> listener_;
  SentDescriptors sent_descriptors_ = SentDescriptors::kPossible;
  DescriptorCloser closer_;
  bool accept_rests_ = false;  // until the closer has less to do
  UniqueFd spare_fd_;  // given up for a moment to refuse a client when descriptors have run out (FAULTS F15)
  std::unordered_map<std::uint32_t, std::unique_ptr<Session>> sessions_;
  std::unordered_map<std::uint32_t, Process> processes_;  // by pid; those with sessions
  std::uint32_t left_behind_ = 0;                         // of them all
  std::uint32_t connected_ = 0;                           // sessions that are not left behind
  struct Silent {
    std::uint32_t session;
    std::int64_t since_ns;
  };
  std::deque<Silent> silent_;              // in the order of their accept; some have spoken since
  std::vector<std::uint32_t> unreadable_;  // sessions: StopReading
  std::vector<std::uint32_t> behind_;      // sessions with unread replies, some without any by now
  std::size_t unread_bytes_ = 0;           // of them all
  std::size_t asked_bytes_ = 0;            // of all sessions
  // Of all that have not ended, side by side: they are looked at far more often than anything else of a session.
  struct Ring {
    std::uint32_t session;
    const abi::SessionPage* page;
    std::uint64_t tail;
  };
  std::vector<Ring> rings_;
  RingDrain drain_;
  NamespaceWatch namespaces_;
  std::int64_t doubted_ns_ = 0;  // the mounts that cannot be watched
  std::int64_t drained_ns_ = 0;       // all rings
  bool drain_posted_ = false;
  std::vector<std::uint32_t> dirty_;  // sessions with gathered replies that are awaited
  std::vector<std::uint32_t> kept_;   // with others, which wait for the rest of their message, a tick at most
  std::vector<std::byte> buffer_;
  engine::HandlerMemory accept_memory_, drain_memory_;
  engine::ReadTotals ended_;
  std::bitset<abi::kFallbacks> told_;  // the log, of these fallbacks
  std::int64_t told_ns_ = 0;
  std::int64_t divided_ns_ = 0;  // the budget for added memory
  std::uint32_t next_id_ = 1;
  std::uint64_t refused_ = 0;
  std::array<std::uint64_t, kTurnedAways> turned_away_{};
  std::uint64_t protocol_errors_ = 0;
};

}  // namespace tierd::server
