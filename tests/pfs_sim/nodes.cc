#include "tests/pfs_sim/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace pfs_sim {

NodeTable::NodeTable(int root_fd, size_t dir_fd_limit) : dir_fd_limit_(dir_fd_limit) {
  struct stat st {};
  fstat(root_fd, &st);
  root_.dev = st.st_dev;
  root_.ino = st.st_ino;
  root_.dir_fd = root_fd;
  root_.lookups = 1;
}

NodeTable::~NodeTable() {
  for (auto& [key, node] : nodes_) {
    for (Handle* handle : node->open) {
      close(handle->fd);
      delete handle;
    }
    if (node->dir_fd >= 0) close(node->dir_fd);
  }
  for (Handle* handle : root_.open) {
    close(handle->fd);
    delete handle;
  }
  close(root_.dir_fd);
}

Node* NodeTable::Find(uint64_t dev, uint64_t ino) {
  const auto it = nodes_.find({dev, ino});
  return it == nodes_.end() ? nullptr : it->second.get();
}

Node* NodeTable::Remember(Node* parent, const std::string& name, const struct stat& st) {
  if (IsSame(&root_, st)) return &root_;
  auto& slot = nodes_[{st.st_dev, st.st_ino}];
  if (slot == nullptr) {
    slot = std::make_unique<Node>();
    slot->dev = st.st_dev;
    slot->ino = st.st_ino;
  }
  Place(slot.get(), parent, name);
  ++slot->lookups;
  return slot.get();
}

void NodeTable::Move(Node* node, Node* parent, const std::string& name) {
  Place(node, parent, name);
}

void NodeTable::Place(Node* node, Node* parent, const std::string& name) {
  if (node->parent == parent && node->name == name) return;
  if (node->parent != nullptr) FoldTotals(node);  // what was read so far belongs to the old name
  Node* old_parent = node->parent;
  node->parent = parent;
  node->name = name;
  ++parent->children;
  if (old_parent != nullptr) {
    --old_parent->children;
    FreeIfUnused(old_parent);
  }
}

void NodeTable::Forget(Node* node, uint64_t lookups) {
  if (node == &root_) return;
  node->lookups -= std::min(node->lookups, lookups);
  FreeIfUnused(node);
}

void NodeTable::FreeIfUnused(Node* node) {
  while (node != &root_ && node->lookups == 0 && node->children == 0 && node->open.empty()) {
    FoldTotals(node);
    if (node->dir_fd >= 0) {
      close(node->dir_fd);
      recent_dirs_.erase(node->recent);
    }
    Node* parent = node->parent;
    nodes_.erase({node->dev, node->ino});
    --parent->children;
    node = parent;
  }
}

int NodeTable::DirFd(Node* node) {
  if (node == &root_) return root_.dir_fd;
  if (node->dir_fd >= 0) {
    recent_dirs_.splice(recent_dirs_.begin(), recent_dirs_, node->recent);
    return node->dir_fd;
  }
  const int parent_fd = DirFd(node->parent);
  if (parent_fd < 0) return parent_fd;
  const int fd =
      openat(parent_fd, node->name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? -ESTALE : -errno;
  struct stat st {};
  if (fstat(fd, &st) != 0 || !IsSame(node, st)) {
    close(fd);
    return -ESTALE;
  }
  node->dir_fd = fd;
  recent_dirs_.push_front(node);
  node->recent = recent_dirs_.begin();
  TrimDirFds();
  return fd;
}

void NodeTable::TrimDirFds() {
  while (recent_dirs_.size() > dir_fd_limit_) {
    Node* oldest = recent_dirs_.back();
    close(oldest->dir_fd);
    oldest->dir_fd = -1;
    recent_dirs_.pop_back();
  }
}

int NodeTable::Stat(Node* node, struct stat* st) {
  const int fd = node->open.empty() ? node->dir_fd : node->open.back()->fd;
  if (fd >= 0) return fstat(fd, st) == 0 ? 0 : -errno;
  const int parent_fd = DirFd(node->parent);
  if (parent_fd < 0) return parent_fd;
  if (fstatat(parent_fd, node->name.c_str(), st, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? -ESTALE : -errno;
  }
  return IsSame(node, *st) ? 0 : -ESTALE;
}

int NodeTable::Open(Node* node, int flags) {
  flags |= O_CLOEXEC | O_NOFOLLOW;
  int fd = -1;
  if (node == &root_) {
    fd = openat(root_.dir_fd, ".", flags);
  } else {
    const int parent_fd = DirFd(node->parent);
    fd = parent_fd < 0 ? -1 : openat(parent_fd, node->name.c_str(), flags);
    if (parent_fd < 0) errno = -parent_fd;
  }
  if (fd >= 0) {
    struct stat st {};
    if (fstat(fd, &st) == 0 && IsSame(node, st)) return fd;
    close(fd);
    errno = ESTALE;
  }
  const int error = errno == ENOENT ? ESTALE : errno;
  if (error != ESTALE || node->open.empty()) return -error;
  // Renamed or unlinked, but still open: reopen it by its descriptor.
  const std::string self = "/proc/self/fd/" + std::to_string(node->open.back()->fd);
  fd = open(self.c_str(), flags & ~O_NOFOLLOW);
  return fd >= 0 ? fd : -errno;
}

std::string NodeTable::PathOf(const Node* node) const {
  if (node == &root_) return ".";
  // A directory moved below its own child behind our back could close a circle: 1,000 levels are enough.
  constexpr int kMaxDepth = 1000;
  std::vector<const std::string*> names;
  for (int i = 0; i < kMaxDepth && node != &root_; ++i, node = node->parent) {
    names.push_back(&node->name);
  }
  std::string path;
  for (auto it = names.rbegin(); it != names.rend(); ++it) {
    if (!path.empty()) path += '/';
    path += **it;
  }
  return path;
}

std::string NodeTable::PathOf(const Node* parent, const std::string& name) const {
  return parent == &root_ ? name : PathOf(parent) + "/" + name;
}

void NodeTable::AddHandle(Handle* handle) {
  handle->node->open.push_back(handle);
  ++handle_count_;
}

void NodeTable::RemoveHandle(Handle* handle) {
  std::erase(handle->node->open, handle);
  --handle_count_;
  close(handle->fd);
  FreeIfUnused(handle->node);
  delete handle;
}

void NodeTable::FoldTotals(Node* node) {
  if (!node->counters.Any()) return;
  PathTotals& totals = forgotten_[PathOf(node)];
  totals.opens += node->counters.opens.exchange(0);
  totals.reads += node->counters.reads.exchange(0);
  totals.bytes += node->counters.bytes.exchange(0);
}

std::map<std::string, PathTotals> NodeTable::Totals(const std::string& prefix) const {
  std::map<std::string, PathTotals> all;
  for (const auto& [path, totals] : forgotten_) {
    if (path.starts_with(prefix)) all[path] = totals;
  }
  for (const auto& [key, node] : nodes_) {
    if (!node->counters.Any()) continue;
    const std::string path = PathOf(node.get());
    if (!path.starts_with(prefix)) continue;
    PathTotals& totals = all[path];
    totals.opens += node->counters.opens;
    totals.reads += node->counters.reads;
    totals.bytes += node->counters.bytes;
  }
  return all;
}

void NodeTable::ResetTotals() {
  forgotten_.clear();
  for (auto& [key, node] : nodes_) node->counters.Reset();
}

}  // namespace pfs_sim
