// Listings and link targets.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cstring>

#include "tests/pfs_sim/file_system.h"

namespace pfs_sim {

int FileSystem::Opendir(const Request& request, Reply* reply) {
  Node* node = NodeOf(request);
  const int fd = nodes_.Open(node, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return -fd;
  auto* handle = new Handle;
  handle->node = node;
  handle->fd = fd;
  nodes_.AddHandle(handle);
  reply->SetOut<fuse_open_out>().fh = reinterpret_cast<uint64_t>(handle);
  return 0;
}

int FileSystem::Readdir(const Request& request, Reply* reply) {
  const auto* in = request.In<fuse_read_in>();
  if (in == nullptr) return EINVAL;
  return FillListing(reinterpret_cast<Handle*>(in->fh), *in, &reply->large);
}

int FileSystem::FillListing(Handle* handle, const fuse_read_in& in, std::vector<char>* out) {
  constexpr size_t kEntriesBytes = 128 << 10;
  if (static_cast<int64_t>(in.offset) != handle->next_offset) {
    handle->entries.clear();
    handle->entries_at = 0;
    if (lseek(handle->fd, static_cast<off_t>(in.offset), SEEK_SET) < 0) return errno;
    handle->next_offset = static_cast<int64_t>(in.offset);
  }
  for (;;) {
    if (handle->entries_at == handle->entries.size()) {
      handle->entries.resize(kEntriesBytes);
      const ssize_t got = getdents64(handle->fd, handle->entries.data(), kEntriesBytes);
      handle->entries.resize(got > 0 ? static_cast<size_t>(got) : 0);
      handle->entries_at = 0;
      if (got < 0) return errno;
      if (got == 0) return 0;
    }
    const auto* entry = reinterpret_cast<const dirent64*>(&handle->entries[handle->entries_at]);
    const size_t name_size = strlen(entry->d_name);
    const size_t packed = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name_size);
    const bool hidden = !hidden_.empty() && Hidden(nodes_.PathOf(handle->node, entry->d_name));
    if (!hidden) {
      if (out->size() + packed > in.size) return 0;
      fuse_dirent header{};
      header.ino = entry->d_ino;
      header.off = static_cast<uint64_t>(entry->d_off);
      header.namelen = static_cast<uint32_t>(name_size);
      header.type = entry->d_type;
      const size_t at = out->size();
      out->resize(at + packed);  // the padding is zero
      memcpy(out->data() + at, &header, FUSE_NAME_OFFSET);
      memcpy(out->data() + at + FUSE_NAME_OFFSET, entry->d_name, name_size);
      handle->next_offset = entry->d_off;
    }
    handle->entries_at += entry->d_reclen;
  }
}

int FileSystem::Readlink(const Request& request, Reply* reply) {
  Node* node = NodeOf(request);
  if (node->parent == nullptr) return EINVAL;
  const int dir_fd = nodes_.DirFd(node->parent);
  if (dir_fd < 0) return -dir_fd;
  reply->large.resize(PATH_MAX);
  const ssize_t size =
      readlinkat(dir_fd, node->name.c_str(), reply->large.data(), reply->large.size());
  if (size < 0) return errno;
  reply->large.resize(static_cast<size_t>(size));
  return 0;
}

}  // namespace pfs_sim
