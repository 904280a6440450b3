// What the kernel knows about: one Node per backing inode it has looked up, one Handle per open.
//
// A node is reached by its parent's descriptor and its last known name; a file that is open is reached
// by its descriptor, so that it survives rename and unlink. When the name leads to another inode the
// answer is ESTALE, which makes the kernel look the path up again, as a network file system does.
// Thread rule: guarded by the file system's mutex, but for Node::counters (atomics).
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/pfs_sim/counters.h"

namespace pfs_sim {

struct Node;

struct Handle {
  Node* node = nullptr;
  int fd = -1;
  // Directories: the part of the listing read ahead of the kernel's requests.
  std::vector<char> entries;
  size_t entries_at = 0;
  int64_t next_offset = 0;  // the offset that the entry at entries_at follows
};
// What the kernel was told at open.
inline Handle* HandleOf(uint64_t fh) { return reinterpret_cast<Handle*>(fh); }

struct Node {
  uint64_t dev = 0;
  uint64_t ino = 0;
  Node* parent = nullptr;
  std::string name;
  uint64_t lookups = 0;   // what the kernel will FORGET
  uint32_t children = 0;  // nodes whose parent this is
  int dir_fd = -1;        // O_PATH, for directories used as a parent
  std::list<Node*>::iterator recent{};  // place in NodeTable::recent_dirs_, valid if dir_fd >= 0
  std::vector<Handle*> open;
  PathCounters counters;
};

struct PathTotals {
  uint64_t opens = 0;
  uint64_t reads = 0;
  uint64_t bytes = 0;
};

class NodeTable {
 public:
  // `root_fd` is the backing directory, owned from here on; `dir_fd_limit` >= 8.
  NodeTable(int root_fd, size_t dir_fd_limit);
  ~NodeTable();
  NodeTable(const NodeTable&) = delete;
  NodeTable& operator=(const NodeTable&) = delete;

  Node* root() { return &root_; }
  // The node of the kernel's id, which is the node's address (1 is the root).
  Node* Get(uint64_t id) { return id == 1 ? &root_ : reinterpret_cast<Node*>(id); }
  static uint64_t IdOf(const Node* node) { return reinterpret_cast<uint64_t>(node); }

  // The node of the inode `st` found as parent/name, with one more lookup counted.
  Node* Remember(Node* parent, const std::string& name, const struct stat& st);
  void Forget(Node* node, uint64_t lookups);
  void Move(Node* node, Node* parent, const std::string& name);
  Node* Find(uint64_t dev, uint64_t ino);  // null: the kernel does not know it

  // A descriptor of the directory for *at() calls, valid until two more directories were asked for;
  // or -errno.
  int DirFd(Node* node);
  // 0 or -errno; ESTALE when the node's name no longer leads to it.
  int Stat(Node* node, struct stat* st);
  // Opens the node's file; -errno, ESTALE as above.
  int Open(Node* node, int flags);

  // Relative to the root, without a leading slash; "." for the root.
  std::string PathOf(const Node* node) const;
  std::string PathOf(const Node* parent, const std::string& name) const;

  void AddHandle(Handle* handle);
  void RemoveHandle(Handle* handle);
  size_t node_count() const { return nodes_.size(); }
  size_t handle_count() const { return handle_count_; }

  // Totals by path, forgotten files included, of the paths that start with `prefix`.
  std::map<std::string, PathTotals> Totals(const std::string& prefix) const;
  void ResetTotals();

 private:
  struct Key {
    uint64_t dev;
    uint64_t ino;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.ino * 0x9e3779b97f4a7c15ULL ^ key.dev; }
  };

  void Place(Node* node, Node* parent, const std::string& name);
  void FreeIfUnused(Node* node);
  void FoldTotals(Node* node);
  void TrimDirFds();
  bool IsSame(const Node* node, const struct stat& st) const {
    return st.st_dev == node->dev && st.st_ino == node->ino;
  }

  const size_t dir_fd_limit_;
  Node root_;
  std::unordered_map<Key, std::unique_ptr<Node>, KeyHash> nodes_;
  std::list<Node*> recent_dirs_;  // front: used last; those with an open dir_fd, without the root
  std::unordered_map<std::string, PathTotals> forgotten_;
  size_t handle_count_ = 0;
};

}  // namespace pfs_sim
