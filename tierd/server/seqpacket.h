// Datagrams with descriptors over a SOCK_SEQPACKET Unix socket: the few system calls of it, with their errors as values. Never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"

namespace tierd::server {

struct Datagram {
  std::size_t bytes = 0;      // 0: the peer has closed
  bool truncated = false;     // longer than the buffer, or its descriptors did not fit
  std::size_t surplus_fds = 0;  // descriptors a client sent; they are closed at once
};

// Creates, binds and listens at `path` (0600, inside a directory that is ours). A socket file nobody listens on is replaced; a live one is kBusy.
Result<UniqueFd> ListenSeqpacket(const std::string& path, int backlog);

// kBusy: nothing there now.
Result<Datagram> ReceiveDatagram(int fd, std::span<std::byte> buffer);

// Sends header and body as one datagram, with up to 2 descriptors. kBusy: the peer's queue is full.
Status SendDatagram(int fd, std::span<const std::byte> datagram, std::span<const int> fds);

struct Peer {
  std::uint32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  const char* stranger = nullptr;  // why it may not be able to read, or see, what this process does (its groups when it connected, its user namespace); nullptr: it is
  UniqueFd pidfd;  // invalid when the kernel gives none (foreign pid namespace)
};
Result<Peer> PeerOf(int fd);

// Creates `path` (mode 0700) if it is missing and checks that it is a directory of ours, 0700, not a symlink (FAULTS T14).
Status PrepareRuntimeDirectory(const std::string& path);
// What that would say; makes nothing.
Status CheckRuntimeDirectory(const std::string& path);

}  // namespace tierd::server
