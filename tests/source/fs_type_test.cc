#include "tierd/source/fs_type.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/source/temp_tree.h"
#include "tierd/base/unique_fd.h"

namespace tierd::source {
namespace {

constexpr char kMountinfo[] =
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "23 22 0:21 / /proc rw - proc proc rw\n"
    "40 22 0:50 / /mnt/home rw,relatime shared:9 master:3 - nfs4 server:/home rw,vers=4.2\n"
    "41 22 0:51 / /mnt/with\\040space rw - lustre 10.0.0.1@tcp:/scratch rw\n"
    "42 22 0:52 / /run/user/0/gvfs rw - fuse.gvfsd-fuse gvfsd-fuse rw\n"
    "43 22 0:53 / /mnt/twice rw - nfs4 old:/x rw\n"
    "44 22 0:54 / /mnt/twice rw - tmpfs tmpfs rw\n"
    "45 22 0:55 / /mnt/sim rw - fuse.pfs_sim pfs_sim rw\n"
    "46 22 8:1 / /mnt/usb rw - fuseblk /dev/sda1 rw\n"
    "broken line\n"
    "47 22 0:x / /mnt/bad rw - nfs4 a:/b rw\n";

std::vector<std::string> Points(const std::vector<Mount>& mounts) {
  std::vector<std::string> points;
  for (const Mount& mount : mounts) points.push_back(mount.mount_point);
  return points;
}

TEST(FsType, ParsesMountinfo) {
  const std::vector<Mount> mounts = ParseMountinfo(kMountinfo);
  ASSERT_EQ(mounts.size(), 9u);
  EXPECT_EQ(mounts[2].fs_name, "nfs4");
  EXPECT_EQ(mounts[2].device, "server:/home");
  EXPECT_EQ(mounts[2].dev, makedev(0, 50));
  EXPECT_EQ(mounts[3].mount_point, "/mnt/with space");
}

TEST(FsType, ParserSurvivesEveryPrefixAndEveryByteMissing) {
  const std::string text = kMountinfo;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    ParseMountinfo(text.substr(0, i));
    ParseMountinfo(text.substr(0, i) + text.substr(std::min(i + 1, text.size())));
  }
}

TEST(FsType, NetworkMountsAreThoseAUserReadsDataFrom) {
  EXPECT_THAT(Points(NetworkMountsOf(ParseMountinfo(kMountinfo))),
              testing::ElementsAre("/mnt/home", "/mnt/with space", "/mnt/sim"));
  EXPECT_TRUE(ListNetworkMounts().ok());
}

TEST(FsType, KnowsNames) {
  EXPECT_EQ(FsTypeName(0xEF53), "ext4");
  EXPECT_EQ(FsTypeName(0x0BD00BD0), "lustre");
  EXPECT_EQ(FsTypeName(0xFF534D42), "cifs");
  EXPECT_EQ(FsTypeName(0x12345), "0x12345");
  for (const char* name : {"lustre", "gpfs", "beegfs", "nfs", "nfs4", "cifs", "ceph", "fuse", "fuse.glusterfs", "9p", "afs"}) {
    EXPECT_TRUE(IsNetworkFs(name)) << name;
  }
  for (const char* name : {"ext4", "xfs", "btrfs", "tmpfs", "fuseblk", "overlay"}) EXPECT_FALSE(IsNetworkFs(name)) << name;
  EXPECT_TRUE(IsMemoryFs("tmpfs"));
}

TEST(FsType, TellsWhatADescriptorIsOn) {
  const UniqueFd proc(::open("/proc", O_PATH | O_DIRECTORY));
  const Result<FsKind> kind = FsKindOf(proc.get());
  ASSERT_TRUE(kind.ok());
  EXPECT_EQ(kind.value().name, "proc");
  EXPECT_FALSE(kind.value().is_network);
  EXPECT_FALSE(FsKindOf(-1).ok());
}

TEST(FsType, CacheDirectoryMustBeALocalWritableDirectory) {
  const TempTree tree;
  tree.Write("file", "x");
  EXPECT_EQ(CheckLocalCacheDirectory(tree / "file").code(), Code::kInvalid);
  EXPECT_EQ(CheckLocalCacheDirectory(tree / "missing").code(), Code::kNotFound);
  EXPECT_EQ(CheckLocalCacheDirectory("/dev").code(), Code::kInvalid);
  const UniqueFd fd(::open(tree.path().c_str(), O_PATH));
  const Result<FsKind> kind = FsKindOf(fd.get());
  ASSERT_TRUE(kind.ok());
  const Status status = CheckLocalCacheDirectory(tree.path());
  EXPECT_EQ(status.ok(), !kind.value().is_network && !kind.value().is_memory) << status.ToString();
}

}  // namespace
}  // namespace tierd::source
