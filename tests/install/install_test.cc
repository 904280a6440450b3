// A user without root installs into a prefix, moves it, and builds against it with nothing else: daemon, tierctl and the examples work from there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/reading.h"
#include "tests/tierctl/run_tierctl.h"

namespace tierd::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using tierctl::Ran;
using tierctl::RunProgram;

Ran Shell(const std::string& command, const std::vector<std::string>& environment = {}) { return RunProgram({"/bin/sh", "-c", command}, environment, ""); }

class InstallTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new ScratchDir;
    const std::string first = scratch_->path() + "/first";
    const Ran installed = Shell(std::string(TIERD_CMAKE_COMMAND) + " --install " + TIERD_BINARY_DIR + " --prefix " + first);
    ASSERT_EQ(installed.exit_code, 0) << installed.out << installed.err;
    fs::rename(first, prefix());
    const Ran configured = Shell(std::string(TIERD_CMAKE_COMMAND) + " -S " + prefix() + "/share/tierd/examples -B " + built() + " -DCMAKE_PREFIX_PATH=" + prefix() + " && " +
                                 TIERD_CMAKE_COMMAND + " --build " + built());
    ASSERT_EQ(configured.exit_code, 0) << configured.out << configured.err;
  }
  static void TearDownTestSuite() {
    delete scratch_;
    scratch_ = nullptr;
  }
  static std::string prefix() { return scratch_->path() + "/moved"; }
  static std::string built() { return scratch_->path() + "/built"; }
  static std::string Readelf(const std::string& file) { return Shell("readelf -dW " + prefix() + "/" + file).out; }

  static ScratchDir* scratch_;
};
ScratchDir* InstallTest::scratch_ = nullptr;

TEST_F(InstallTest, NothingNamesThePlaceItWasInstalledTo) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(prefix())) {
    if (!entry.is_regular_file()) continue;
    ++files;
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    EXPECT_EQ(text.str().find(scratch_->path() + "/first"), std::string::npos) << entry.path();
    // Debug information names the source tree; nothing that is read at run or build time may.
    if (entry.path().extension() == ".cmake" || entry.path().extension() == ".pc") {
      EXPECT_EQ(text.str().find(TIERD_SOURCE_DIR), std::string::npos) << entry.path();
    }
  }
  EXPECT_GT(files, 10);
  for (const char* program : {"bin/tierd", "bin/tierctl", "lib/libtier.so"}) EXPECT_EQ(Readelf(program).find("RUNPATH"), std::string::npos) << program;
}

TEST_F(InstallTest, LinksOfInstalledPagesLeadToInstalledPages) {
  const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))");
  int pages = 0;
  int links = 0;
  for (const auto& entry : fs::recursive_directory_iterator(prefix() + "/share/doc/tierd")) {
    if (entry.path().extension() != ".md") continue;
    ++pages;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string page = text.str();
    for (std::sregex_iterator found(page.begin(), page.end(), link), end; found != end; ++found, ++links) {
      EXPECT_TRUE(fs::exists(entry.path().parent_path() / (*found)[1].str())) << entry.path() << ": " << (*found)[1];
    }
  }
  EXPECT_TRUE(fs::exists(prefix() + "/share/doc/tierd/README.md"));
  EXPECT_GT(pages, 20);
  EXPECT_GT(links, 40);
}

TEST_F(InstallTest, LibtierNeedsLibcAlone) {
  std::istringstream lines(Readelf("lib/libtier.so"));
  int needed = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    ++needed;
    // The dynamic linker is part of libc: it gives thread-local storage.
    EXPECT_TRUE(line.find("[libc.so.6]") != std::string::npos || line.find("[ld-linux") != std::string::npos) << line;
  }
  EXPECT_GE(needed, 1);
  EXPECT_THAT(Readelf("lib/libtier.so"), HasSubstr("[libtier.so.1]"));
}

TEST_F(InstallTest, PkgConfigIsEnoughToBuildWith) {
  const std::string examples = prefix() + "/share/tierd/examples";
  const std::string flags = " -Wall -Wextra -Werror $(pkg-config --cflags --libs tier) -o " + scratch_->path();
  const Ran c = Shell("cc -std=c11 " + examples + "/tier_cat.c" + flags + "/cat_c", {"PKG_CONFIG_PATH=" + prefix() + "/lib/pkgconfig"});
  EXPECT_EQ(c.exit_code, 0) << c.err;
  const Ran cpp = Shell("c++ -std=c++17 -fno-exceptions -pthread " + examples + "/tier_epochs.cc" + flags + "/epochs", {"PKG_CONFIG_PATH=" + prefix() + "/lib/pkgconfig"});
  EXPECT_EQ(cpp.exit_code, 0) << cpp.err;
  for (const char* name : {"/tier_cat.c", "/tier_epochs.cc"}) {
    std::ifstream text(examples + name);
    EXPECT_LE(std::count(std::istreambuf_iterator<char>(text), {}, '\n'), 60) << name << ": an example is read at a glance";
  }
  Write(scratch_->path() + "/hello", "hello\n");
  const Ran ran = Shell(scratch_->path() + "/cat_c " + scratch_->path() + "/hello", {"LD_LIBRARY_PATH=" + prefix() + "/lib", "TIERD_SOCKET=" + scratch_->path() + "/none"});
  EXPECT_EQ(ran.out, "hello\n") << ran.err;
}

TEST_F(InstallTest, ExamplesRunWithAndWithoutTheDaemon) {
  const std::string source = scratch_->path() + "/data", work = scratch_->path();
  for (int i = 0; i < 40; ++i) Write(source + "/f" + std::to_string(i), Content(std::to_string(i), 3000 + static_cast<std::size_t>(i)));
  Write(work + "/data/large", Content("large", 9 << 20));
  const std::vector<std::string> environment{"TIERD_SOCKET=" + work + "/run/tierd.sock"};
  const auto cat = [&] { return RunProgram({built() + "/tier_cat", source + "/f7", source + "/large", source + "/gone"}, environment, ""); };
  const auto epochs = [&] { return RunProgram({built() + "/tier_epochs", source, "2", "3"}, environment, ""); };
  const std::string content = Content("7", 3007) + Content("large", 9 << 20);

  const Ran cat_alone = cat(), epochs_alone = epochs();
  EXPECT_EQ(cat_alone.exit_code, 1);
  EXPECT_TRUE(cat_alone.out == content);
  EXPECT_EQ(cat_alone.err, source + "/f7: 3007 bytes from the source\n" + source + "/gone: No such file or directory\n");
  EXPECT_EQ(epochs_alone.exit_code, 0) << epochs_alone.err;
  EXPECT_THAT(epochs_alone.out, HasSubstr("reads: RAM 0 SSD 0 source by tierd 0 source 41\n"));

  DaemonProcess daemon(work);
  DaemonProcess::Options options;
  options.source = source;
  options.binary = prefix() + "/bin/tierd";
  options.more = kTrustStamps;
  options.more.insert(options.more.end(), {"--set", "source.warm=off"});
  ASSERT_TRUE(daemon.Start(options)) << daemon.output();
  const Ran cat_first = cat(), cat_again = cat(), epochs_cached = epochs();
  EXPECT_TRUE(cat_first.out == content);
  EXPECT_THAT(cat_first.err, HasSubstr("3007 bytes from the source, through tierd\n"));
  EXPECT_TRUE(cat_again.out == content);
  EXPECT_THAT(cat_again.err, HasSubstr("3007 bytes from RAM\n"));
  EXPECT_EQ(epochs_cached.exit_code, 0) << epochs_cached.err;
  EXPECT_THAT(epochs_cached.out, HasSubstr("reads: RAM 41 SSD 0 source by tierd 0 source 0\n"));
  const auto checksum = [](const std::string& text) { return text.substr(text.find("checksum"), 17); };
  EXPECT_EQ(checksum(epochs_cached.out), checksum(epochs_alone.out));
  const Ran status = RunProgram({prefix() + "/bin/tierctl", "status"}, environment, "");
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr(source));
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace tierd::e2e
