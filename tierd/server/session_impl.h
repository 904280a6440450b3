// What the hub keeps per connection. Private to session_hub.cc (connections), session_messages.cc (what clients say), session_replies.cc (what they are told)
// and session_counters.cc (what they write into their pages).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "tierd/server/seqpacket.h"
#include "tierd/server/session_hub.h"
#include "tierd/server/together.h"

namespace tierd::server {

struct SessionHub::Session {
  Session(boost::asio::io_context& loop, UniqueFd fd, Peer who, ram::SessionPage the_page, std::uint32_t the_id)
      : id(the_id), pid(who.pid), stranger(who.stranger), page(std::move(the_page)), socket(loop), process(loop) {
    socket.assign(fd.get());  // throws when the kernel has no memory to watch it: the descriptor is still the caller's then
    (void)fd.Release();
    if (!who.pidfd.valid()) return;
    process.assign(who.pidfd.get());
    (void)who.pidfd.Release();
  }

  struct Queued {
    std::vector<std::byte> datagram;
    std::vector<UniqueFd> fds;
  };

  std::uint32_t id;
  std::uint32_t pid;
  const Stranger stranger;
  ram::SessionPage page;
  boost::asio::posix::stream_descriptor socket;
  boost::asio::posix::stream_descriptor process;  // a pidfd, readable when the process has ended; not open: the kernel gave none
  std::uint32_t mounts = 0;  // NamespaceWatch::Add
  bool welcomed = false;
  bool foreign_clock = false;  // another time namespace
  bool closed = false;   // no conversation any more
  bool unreadable = false;  // SessionHub::StopReading
  bool drained = false;  // the other end is closed and all that came was read
  bool hung_up = false;  // the socket is closed at both ends
  bool ended = false;
  bool process_gone = false;
  bool waiting_to_send = false;
  std::size_t ring = 0;        // its place in rings_, until it has ended
  engine::ReadTotals seen;  // what was taken over from the page so far
  std::int64_t begun_ns = 0;   // MonotonicNs
  std::int64_t counted_ns = 0;  // when that was
  std::uint32_t untold_seen = 0;  // SessionPage::untold that the engine knows of
  std::uint32_t asked = 0;      // requests without an answer
  std::size_t asked_bytes = 0;  // that these take
  bool dirty = false;  // has gathered replies that are awaited
  bool keeps = false;  // has gathered others
  Together together;
  MessageWriter replies{abi::MessageType::kFetchReply};
  MessageWriter advice_replies{abi::MessageType::kAdviseReply};
  std::deque<Queued> queue;  // the peer's queue was full
  std::size_t queued_fds = 0;
  std::size_t unread_bytes = 0;     // in `queue`
  std::int64_t unread_since_ns = 0;  // when the client has last read one
  bool is_behind = false;           // in SessionHub::behind_
  // Of the waits for the socket (to read, to write), for the process, and of the end.
  engine::HandlerMemory read_memory, write_memory, process_memory, end_memory;
};

}  // namespace tierd::server
