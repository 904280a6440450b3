#include "tests/pfs_sim/reply.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

namespace pfs_sim {
namespace {

ssize_t ReadFully(int fd, char* to, size_t size, uint64_t offset) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got =
        pread(fd, to + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return done > 0 ? static_cast<ssize_t>(done) : -errno;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

void FlipBit(const ReadWork& read, char* data, size_t size) {
  if (size == 0) return;
  uint64_t byte = size / 2;
  unsigned bit = 0;
  if (read.flip_bit != ReadWork::kMiddle) {
    bit = read.flip_bit % 8;
    byte = read.flip_bit / 8 - read.offset;  // wraps, and is refused below, when before the read
    if (byte >= size) return;
  }
  data[byte] = static_cast<char>(data[byte] ^ (1 << bit));
}

}  // namespace

// The number of bytes to send; sets reply.error on a failed read.
size_t ReplyWriter::FetchData(Reply& reply) {
  const ReadWork& read = reply.read;
  if (buffer_.size() < read.size) buffer_.resize(read.size);
  const ssize_t got = ReadFully(read.fd, buffer_.data(), read.size, read.offset);
  if (got < 0) {
    reply.error = static_cast<int>(-got);
    return 0;
  }
  auto size = static_cast<size_t>(got);
  if (read.flip) FlipBit(read, buffer_.data(), size);
  if (read.cut) {
    const uint64_t keep = read.cut_bytes == ReadWork::kMiddle ? size / 2 : read.cut_bytes;
    size = std::min<uint64_t>(size, keep);
  }
  read.path->reads.fetch_add(1, std::memory_order_relaxed);
  read.path->bytes.fetch_add(size, std::memory_order_relaxed);
  counters_.bytes_read.fetch_add(size, std::memory_order_relaxed);
  return size;
}

void ReplyWriter::Send(Reply& reply) {
  iovec parts[3];
  fuse_out_header header{};
  parts[0] = {&header, sizeof(header)};
  int count = 1;
  size_t total = sizeof(header);
  const auto add = [&](void* data, size_t size) {
    if (size == 0) return;
    parts[count++] = {data, size};
    total += size;
  };
  if (reply.is_read && reply.error == 0) {
    const size_t size = FetchData(reply);
    if (reply.error == 0) add(buffer_.data(), size);
  } else if (reply.error == 0) {
    add(reply.small.data(), reply.small_size);
    add(reply.large.data(), reply.large.size());
  }
  header.len = static_cast<uint32_t>(total);
  header.error = -reply.error;
  header.unique = reply.unique;
  counters_.End(reply.op, reply.error);
  // ENOENT: the request was given up by the kernel; ENODEV: the mount is gone. Nobody waits for either.
  while (writev(dev_fd_, parts, count) < 0 && errno == EINTR) {
  }
}

}  // namespace pfs_sim
