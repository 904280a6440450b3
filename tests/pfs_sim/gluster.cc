#include "tests/pfs_sim/gluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/pfs_sim/mount.h"

namespace pfs_sim {
namespace {

constexpr int kUnavailable = 77;

}  // namespace

std::unique_ptr<GlusterRig> GlusterRig::Start(uint64_t delay_us, std::string* why) {
  std::unique_ptr<GlusterRig> rig(new GlusterRig);
  const char* root = getenv("TMPDIR");
  std::string base = std::string(root != nullptr && *root != 0 ? root : "/tmp") + "/gluster_rig.XXXXXX";
  if (mkdtemp(base.data()) == nullptr) {
    *why = "mkdtemp " + base + ": " + strerror(errno);
    return nullptr;
  }
  rig->base_ = base;
  if (rig->Restart(delay_us)) return rig;
  *why = (rig->last_status_ == kUnavailable ? "unavailable: " : "error: ") + rig->last_output_;
  return nullptr;
}

bool GlusterRig::Restart(uint64_t delay_us) {
  return Run("start", "--delay-us " + std::to_string(delay_us) + " --owner " + std::to_string(getpid()));
}

GlusterRig::~GlusterRig() {
  if (base_.empty()) return;
  // Never a recursive remove through a mount that is still there.
  if (!Stop() || IsMounted(mount())) return;
  std::error_code error;
  std::filesystem::remove_all(base_, error);
}

bool GlusterRig::Run(const std::string& verb, const std::string& arguments) {
  // The daemons inherit the script's descriptors: a pipe to them would never end, so a file it is.
  const std::string log = base_ + "/script.log";
  const std::string command = "'" PFS_SIM_GLUSTER_SCRIPT "' " + verb + " '" + base_ + "' " + arguments +
                              " > '" + log + "' 2>&1 < /dev/null";
  const int status = system(command.c_str());
  last_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  last_output_.clear();
  FILE* file = fopen(log.c_str(), "re");
  if (file != nullptr) {
    char part[4096];
    const size_t got = fread(part, 1, sizeof(part), file);
    last_output_.assign(part, got);
    fclose(file);
  }
  while (!last_output_.empty() && last_output_.back() == '\n') last_output_.pop_back();
  return last_status_ == 0;
}

}  // namespace pfs_sim
