#include "tierd/server/namespace_watch.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tierd/base/unique_fd.h"

namespace tierd::server {
namespace {

// 0: it cannot be told; the process may not be looked at, say.
std::uint64_t MountNamespaceOf(const std::string& process) {
  struct stat st {};
  return ::stat(("/proc/" + process + "/ns/mnt").c_str(), &st) == 0 ? st.st_ino : 0;
}

}  // namespace

bool IsInOurMountNamespace(std::uint32_t pid) {
  const std::uint64_t theirs = MountNamespaceOf(std::to_string(pid));
  return theirs != 0 && theirs == MountNamespaceOf("self");
}

std::uint32_t NamespaceWatch::Add(std::uint32_t pid) {
  const std::string process = std::to_string(pid);
  const std::uint64_t inode = MountNamespaceOf(process);
  const auto known = std::find_if(spaces_.begin(), spaces_.end(), [inode](const auto& one) { return inode != 0 && one.second->inode == inode; });
  if (known != spaces_.end()) {
    ++known->second->clients;
    return known->first;
  }
  UniqueFd fd(::open(("/proc/" + process + "/mountinfo").c_str(), O_RDONLY | O_CLOEXEC));
  auto space = std::make_unique<Space>(loop_);
  boost::system::error_code unusable;
  if (!fd.valid() || space->mounts.assign(fd.get(), unusable)) return 0;
  (void)fd.Release();
  space->inode = inode;
  Space& added = *spaces_.emplace(++last_id_, std::move(space)).first->second;
  Await(last_id_, added);
  return last_id_;
}

void NamespaceWatch::Remove(std::uint32_t space) {
  const auto found = spaces_.find(space);
  if (found != spaces_.end() && --found->second->clients == 0) spaces_.erase(found);
}

void NamespaceWatch::Await(std::uint32_t id, Space& space) {
  space.mounts.async_wait(boost::asio::posix::stream_descriptor::wait_error, [this, id](const boost::system::error_code& error) {
    const auto found = error ? spaces_.end() : spaces_.find(id);
    if (found == spaces_.end()) return;
    on_change(id);
    Await(id, *found->second);
  });
}

}  // namespace tierd::server
