// Bind mounts of the same device below a root (HAZARDS 2.14), with all that a kernel may lack: openat2, or the mount numbers of statx, or both.
#include "tierd/io/mount_of.h"

#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>

#include "tests/e2e/own_mounts.h"
#include "tests/io/engine_test_base.h"
#include "tierd/io/file_access.h"

namespace tierd::io {
namespace {

// Before the root is opened, which belongs to the mount namespace of then.
struct OwnMounts {
  OwnMounts() { e2e::KeepMountsToOneself(); }
};

class MountTest : private OwnMounts, public EngineTest {
 protected:
  void SetUp() override {
    for (const char* name : {"bound", "beside", "other"}) ASSERT_EQ(::mkdir(Path(name).c_str(), 0700), 0);
    for (const char* name : {"bound/f", "beside/f", "other/f", "file"}) WriteContent(name, 100);
    if (!Bind("other", "bound") || !Bind("other/f", "file")) GTEST_SKIP() << "needs root to mount";
  }
  void TearDown() override {
    for (const char* name : {"bound", "file"}) (void)::umount2(Path(name).c_str(), MNT_DETACH);
  }
  bool Bind(const char* from, const char* to) const { return ::mount(Path(from).c_str(), Path(to).c_str(), nullptr, MS_BIND, nullptr) == 0; }
  UniqueFd Place(const char* name) const { return UniqueFd(::open(Path(name).c_str(), O_PATH | O_CLOEXEC)); }
};

TEST_F(MountTest, FdinfoAndStatxNameTheSameMount) {
  ASSERT_NE(MountOf(root()), 0u);
  for (const char* name : {"bound", "beside", "file", "beside/f"}) {
    const UniqueFd place = Place(name);
    EXPECT_EQ(MountOf(place.get()), MountByFdinfo(place.get())) << name;
    EXPECT_EQ(MountOf(place.get()) == MountOf(root()), std::string(name).starts_with("beside")) << name;
  }
  EXPECT_EQ(MountOf(-1), 0u);
}

TEST_F(MountTest, NothingBehindAMountIsOpenedOrStattedWhateverTheKernelLacks) {
  for (const bool has_openat2 : {true, false}) {
    for (const bool statx_tells_mounts : {true, false}) {
      AccessContext context;
      context.has_openat2 = has_openat2;
      context.statx_tells_mounts = statx_tells_mounts;
      const auto read = [&](const char* name) {
        std::byte buffer[4096];
        FileReadRequest request;
        request.root_fd = root();
        request.root_mount = MountOf(root());
        request.path = name;
        request.buffer = buffer;
        request.capacity = sizeof buffer;
        StepCounts counts;
        return ReadFile(context, request, &counts).error;
      };
      const auto stat = [&](const char* name) {
        StepCounts counts;
        return StatPath(context, {root(), name, MountOf(root())}, &counts).error;
      };
      for (const char* name : {"bound/f", "file"}) {
        EXPECT_EQ(read(name), EXDEV) << name << has_openat2 << statx_tells_mounts;
        EXPECT_EQ(stat(name), EXDEV) << name << has_openat2 << statx_tells_mounts;
      }
      EXPECT_EQ(stat("bound"), EXDEV) << has_openat2 << statx_tells_mounts;
      EXPECT_EQ(read("beside/f"), 0);
      for (const char* name : {"beside/f", "beside", ""}) EXPECT_EQ(stat(name), 0) << name << has_openat2 << statx_tells_mounts;
    }
  }
}

class EngineMountTest : public MountTest, public testing::WithParamInterface<EngineKind> {};

TEST_P(EngineMountTest, NothingBehindAMountIsOpenedOrStatted) {
  MakeEngineOrSkip(GetParam());
  if (engine_ == nullptr) return;
  const auto stat = [&](const char* name) {
    StatResult result;
    engine_->SubmitStat({root(), name, MountOf(root())}, [&](const StatResult& r) { result = r; });
    Drain();
    return result.error;
  };
  for (const char* name : {"bound/f", "file"}) {
    EXPECT_EQ(Read(name).result.error, EXDEV) << name;
    EXPECT_EQ(stat(name), EXDEV) << name;
  }
  EXPECT_EQ(stat("bound"), EXDEV);
  EXPECT_EQ(Read("beside/f").bytes, Content("beside/f", 100));
  for (const char* name : {"beside/f", "beside", ""}) EXPECT_EQ(stat(name), 0) << name;
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineMountTest, testing::Values(EngineKind::kUring, EngineKind::kThreads));

}  // namespace
}  // namespace tierd::io
