// The modifying operations: simple and synchronous, executed when the request arrives.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/pfs_sim/file_system.h"

namespace pfs_sim {
namespace {

timespec StampOf(uint32_t valid, uint32_t set, uint32_t now, uint64_t sec, uint32_t nsec) {
  if (valid & now) return {0, UTIME_NOW};
  if (valid & set) return {static_cast<time_t>(sec), static_cast<long>(nsec)};
  return {0, UTIME_OMIT};
}

}  // namespace

int FileSystem::Setattr(const Request& request, Reply* reply) {
  const auto* in = request.In<fuse_setattr_in>();
  if (in == nullptr) return EINVAL;
  const int error = ChangeAttributes(NodeOf(request), *in);
  return error != 0 ? error : Getattr(request, reply);
}

int FileSystem::ChangeAttributes(Node* node, const fuse_setattr_in& in) {
  if (in.valid & FATTR_SIZE) {
    const int error = Truncate(node, in);
    if (error != 0) return error;
  }
  Node* parent = node->parent == nullptr ? node : node->parent;
  const int dir_fd = nodes_.DirFd(parent);
  if (dir_fd < 0) return -dir_fd;
  const char* name = parent == node ? "." : node->name.c_str();
  if (in.valid & (FATTR_UID | FATTR_GID)) {
    const uid_t uid = in.valid & FATTR_UID ? in.uid : static_cast<uid_t>(-1);
    const gid_t gid = in.valid & FATTR_GID ? in.gid : static_cast<gid_t>(-1);
    if (fchownat(dir_fd, name, uid, gid, AT_SYMLINK_NOFOLLOW) != 0) return errno;
  }
  if (in.valid & FATTR_MODE) {
    if (fchmodat(dir_fd, name, in.mode & 07777, 0) != 0) return errno;
  }
  if (in.valid & (FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW)) {
    const timespec stamps[2] = {
        StampOf(in.valid, FATTR_ATIME, FATTR_ATIME_NOW, in.atime, in.atimensec),
        StampOf(in.valid, FATTR_MTIME, FATTR_MTIME_NOW, in.mtime, in.mtimensec)};
    if (utimensat(dir_fd, name, stamps, AT_SYMLINK_NOFOLLOW) != 0) return errno;
  }
  return 0;
}

int FileSystem::Truncate(Node* node, const fuse_setattr_in& in) {
  const auto size = static_cast<off_t>(in.size);
  if (in.valid & FATTR_FH) return ftruncate(HandleOf(in.fh)->fd, size) == 0 ? 0 : errno;
  const int fd = nodes_.Open(node, O_WRONLY);
  if (fd < 0) return -fd;
  const int error = ftruncate(fd, size) == 0 ? 0 : errno;
  close(fd);
  return error;
}

// What a non-root caller creates through a root mount is the caller's.
void FileSystem::GiveToCaller(int dir_fd, const char* name, const fuse_in_header& caller) {
  if (geteuid() != 0 || (caller.uid == 0 && caller.gid == 0)) return;
  if (fchownat(dir_fd, name, caller.uid, caller.gid, AT_SYMLINK_NOFOLLOW) != 0) {
    ++counters_.errors[Index(Op::kOther)];  // the file stays root's: visible in its attributes
  }
}

int FileSystem::Create(const Request& request, Reply* reply) {
  const auto* in = request.In<fuse_create_in>();
  const char* name = request.Name(sizeof(fuse_create_in));
  if (in == nullptr || name == nullptr) return EINVAL;
  Node* parent = NodeOf(request);
  const int dir_fd = nodes_.DirFd(parent);
  if (dir_fd < 0) return -dir_fd;
  const int flags = static_cast<int>(in->flags) & (O_ACCMODE | O_EXCL | O_SYNC);
  const int fd = openat(dir_fd, name, flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC, in->mode & 07777);
  if (fd < 0) return errno;
  GiveToCaller(dir_fd, name, *request.header);
  struct Out {
    fuse_entry_out entry;
    fuse_open_out open;
  };
  auto& out = reply->SetOut<Out>();
  const int error = AnswerEntry(parent, name, false, &out.entry);
  if (error != 0) {
    close(fd);
    return error;
  }
  auto* handle = new pfs_sim::Handle;
  handle->node = nodes_.Get(out.entry.nodeid);
  handle->fd = fd;
  nodes_.AddHandle(handle);
  ++handle->node->counters.opens;
  out.open.fh = reinterpret_cast<uint64_t>(handle);
  out.open.open_flags = OpenReplyFlags();
  return 0;
}

int FileSystem::Write(const Request& request, Reply* reply) {
  const auto* in = request.In<fuse_write_in>();
  if (in == nullptr || request.body_size - sizeof(*in) < in->size) return EINVAL;
  const ssize_t done = pwrite(HandleOf(in->fh)->fd, in + 1, in->size, static_cast<off_t>(in->offset));
  if (done < 0) return errno;
  counters_.bytes_written += static_cast<uint64_t>(done);
  reply->SetOut<fuse_write_out>().size = static_cast<uint32_t>(done);
  return 0;
}

int FileSystem::Fsync(const Request& request) {
  const auto* in = request.In<fuse_fsync_in>();
  if (in == nullptr) return EINVAL;
  const int fd = HandleOf(in->fh)->fd;
  const int result = in->fsync_flags & FUSE_FSYNC_FDATASYNC ? fdatasync(fd) : fsync(fd);
  return result == 0 ? 0 : errno;
}

int FileSystem::Fallocate(const Request& request) {
  const auto* in = request.In<fuse_fallocate_in>();
  if (in == nullptr) return EINVAL;
  const int result = fallocate(HandleOf(in->fh)->fd, static_cast<int>(in->mode),
                               static_cast<off_t>(in->offset), static_cast<off_t>(in->length));
  return result == 0 ? 0 : errno;
}

int FileSystem::Remove(const Request& request, int flags) {
  const char* name = request.Name(0);
  if (name == nullptr) return EINVAL;
  const int dir_fd = nodes_.DirFd(NodeOf(request));
  if (dir_fd < 0) return -dir_fd;
  return unlinkat(dir_fd, name, flags) == 0 ? 0 : errno;
}

int FileSystem::Mkdir(const Request& request, Reply* reply) {
  Node* parent = NodeOf(request);
  const int dir_fd = nodes_.DirFd(parent);
  if (dir_fd < 0) return -dir_fd;
  const char* name = nullptr;
  int result = -1;
  if (request.header->opcode == FUSE_MKDIR) {
    const auto* in = request.In<fuse_mkdir_in>();
    name = request.Name(sizeof(fuse_mkdir_in));
    if (in == nullptr || name == nullptr) return EINVAL;
    result = mkdirat(dir_fd, name, in->mode & 07777);
  } else {
    const auto* in = request.In<fuse_mknod_in>();
    name = request.Name(sizeof(fuse_mknod_in));
    if (in == nullptr || name == nullptr) return EINVAL;
    result = mknodat(dir_fd, name, in->mode, in->rdev);
  }
  if (result != 0) return errno;
  GiveToCaller(dir_fd, name, *request.header);
  return AnswerEntry(parent, name, false, &reply->SetOut<fuse_entry_out>());
}

int FileSystem::Rename(const Request& request) {
  const bool two = request.header->opcode == FUSE_RENAME2;
  const size_t names_at = two ? sizeof(fuse_rename2_in) : sizeof(fuse_rename_in);
  const auto* in = request.In<fuse_rename_in>();  // the head of fuse_rename2_in as well
  const char* from = request.Name(names_at);
  const char* to = from == nullptr ? nullptr : request.Name(names_at + strlen(from) + 1);
  if (in == nullptr || to == nullptr) return EINVAL;
  Node* new_parent = nodes_.Get(in->newdir);
  const int from_fd = nodes_.DirFd(NodeOf(request));
  if (from_fd < 0) return -from_fd;
  const int to_fd = nodes_.DirFd(new_parent);
  if (to_fd < 0) return -to_fd;
  const unsigned flags = two ? request.In<fuse_rename2_in>()->flags : 0;
  if (renameat2(from_fd, from, to_fd, to, flags) != 0) return errno;
  struct stat st {};
  if (fstatat(to_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
    Node* node = nodes_.Find(st.st_dev, st.st_ino);
    if (node != nullptr) nodes_.Move(node, new_parent, to);
  }
  if ((flags & RENAME_EXCHANGE) && fstatat(from_fd, from, &st, AT_SYMLINK_NOFOLLOW) == 0) {
    Node* node = nodes_.Find(st.st_dev, st.st_ino);
    if (node != nullptr) nodes_.Move(node, NodeOf(request), from);
  }
  return 0;
}

int FileSystem::Link(const Request& request, Reply* reply) {
  const auto* in = request.In<fuse_link_in>();
  const char* name = request.Name(sizeof(fuse_link_in));
  if (in == nullptr || name == nullptr) return EINVAL;
  Node* old_node = nodes_.Get(in->oldnodeid);
  Node* parent = NodeOf(request);
  if (old_node->parent == nullptr) return EPERM;
  const int old_fd = nodes_.DirFd(old_node->parent);
  if (old_fd < 0) return -old_fd;
  const int dir_fd = nodes_.DirFd(parent);
  if (dir_fd < 0) return -dir_fd;
  if (linkat(old_fd, old_node->name.c_str(), dir_fd, name, 0) != 0) return errno;
  return AnswerEntry(parent, name, false, &reply->SetOut<fuse_entry_out>());
}

int FileSystem::Symlink(const Request& request, Reply* reply) {
  const char* name = request.Name(0);
  const char* target = name == nullptr ? nullptr : request.Name(strlen(name) + 1);
  if (target == nullptr) return EINVAL;
  Node* parent = NodeOf(request);
  const int dir_fd = nodes_.DirFd(parent);
  if (dir_fd < 0) return -dir_fd;
  if (symlinkat(target, dir_fd, name) != 0) return errno;
  GiveToCaller(dir_fd, name, *request.header);
  return AnswerEntry(parent, name, false, &reply->SetOut<fuse_entry_out>());
}

}  // namespace pfs_sim
