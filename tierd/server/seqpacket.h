// Datagrams with descriptors over a SOCK_SEQPACKET Unix socket: the few system calls of it, with their errors as values. Never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"

namespace tierd::server {

struct Datagram {
  std::size_t bytes = 0;      // 0: the peer has closed
  bool truncated = false;     // longer than the buffer
  // It carries descriptors. It was not taken: the descriptors would be closed by this thread, and
  // the last close of one may wait for as long as the sender likes. So it stays the next one.
  bool carries_descriptors = false;
};

// Whether the kernel refuses descriptors that are sent to `fd`, or to whoever connects to it.
// Linux 6.16 and later do (SO_PASSRIGHTS): the sender gets EPERM.
bool RefuseDescriptors(int fd);

// Creates, binds and listens at `path` (0600, inside a directory that is ours). A socket file nobody listens on is replaced; a live one is kBusy.
Result<UniqueFd> ListenSeqpacket(const std::string& path, int backlog);

enum class SentDescriptors : std::uint8_t { kRefusedByKernel, kPossible };
// kBusy: nothing there now.
Result<Datagram> ReceiveDatagram(int fd, std::span<std::byte> buffer, SentDescriptors sent);
// Whether no process holds the other end any more.
bool PeerHasClosed(int fd);

// Sends header and body as one datagram, with up to 2 descriptors. kBusy: the peer's queue is full.
Status SendDatagram(int fd, std::span<const std::byte> datagram, std::span<const int> fds);

// Why a client was refused, or its conversation ended, by the daemon.
enum class TurnedAway : std::uint8_t {
  kUser,           // another user's process
  kGroups,         // it lacks a group of the daemon's
  kCapabilities,   // it lacks those by which the daemon reads what modes forbid
  kNamespace,      // it is not in the daemon's user namespace, which counts; or there is no pidfd of it
  kVersion,        // of the protocol or the layout
  kLimit,          // sessions in all, or of its process
  kMemory,         // no memory or no descriptor is left
  kSilent,         // it said no hello in time
  kUnread,         // it did not read its replies
};
inline constexpr std::size_t kTurnedAways = 9;
inline constexpr const char* kTurnedAwayNames[kTurnedAways] = {
    "user", "groups", "capabilities", "namespace", "version", "limit", "memory", "silent", "unread"};

// A client that may not be able to read, or see, what this process does.
struct Stranger {
  const char* why = nullptr;  // a sentence; nullptr: it is none
  TurnedAway counts_as = TurnedAway::kGroups;
};

struct Peer {
  std::uint32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  Stranger stranger;  // by groups, capabilities and user namespace when it connected
  UniqueFd pidfd;  // invalid when the kernel gives none (foreign pid namespace)
};
Result<Peer> PeerOf(int fd);

// Creates `path` (mode 0700) if it is missing and checks that it is a directory of ours, 0700, not a symlink (FAULTS T14).
Status PrepareRuntimeDirectory(const std::string& path);
// What that would say; makes nothing.
Status CheckRuntimeDirectory(const std::string& path);

}  // namespace tierd::server
