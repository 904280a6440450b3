// The C ABIs, tier.h and tierd_policy.h, against text files that are kept: declarations, sizes, offsets, values, exported symbols. What is there never changes;
// what is new is appended with  UPDATE_GOLDEN=1 abi_golden_test  and shows in the diff.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "client_lib/include/tier/tier.h"
#include "policies/tierd_policy.h"
#include "tests/tierctl/run_tierctl.h"

namespace tierd {
namespace {

#define VALUE(name) out << #name " = " << static_cast<long long>(name) << "\n"
#define SIZE(type) out << #type ": " << sizeof(type) << " bytes, aligned to " << alignof(type) << "\n"
#define FIELD(type, field) out << "  +" << offsetof(type, field) << " " #field " (" << sizeof(type::field) << ")\n"

std::string Content(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A header without comments and layout: what a compiler sees of it.
std::string Declarations(const std::string& path) {
  std::string text = Content(path);
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comment = std::min(text.find("/*", at), text.size());
    plain += text.substr(at, comment - at);
    at = comment == text.size() ? comment : text.find("*/", comment) + 2;
  }
  plain = std::regex_replace(plain, std::regex("[ \t]+"), " ");
  plain = std::regex_replace(plain, std::regex(" ?\n[ \n]*"), "\n");
  return plain;
}

void Compare(const std::string& name, const std::string& now) {
  const std::string file = std::string(TIERD_SOURCE_DIR) + "/tests/install/" + name;
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(file) << now;
  EXPECT_EQ(now, Content(file)) << "the ABI differs from " << file;
}

void ClientStructs(std::ostream& out) {
  SIZE(tier_options);
  FIELD(tier_options, size); FIELD(tier_options, socket); FIELD(tier_options, timeout_ms); FIELD(tier_options, flags);
  SIZE(tier_view);
  FIELD(tier_view, data); FIELD(tier_view, size); FIELD(tier_view, origin); FIELD(tier_view, kind_); FIELD(tier_view, opaque_);
  SIZE(tier_attr);
  FIELD(tier_attr, size); FIELD(tier_attr, dev); FIELD(tier_attr, ino); FIELD(tier_attr, bytes); FIELD(tier_attr, mode); FIELD(tier_attr, nlink);
  FIELD(tier_attr, uid); FIELD(tier_attr, gid); FIELD(tier_attr, blksize); FIELD(tier_attr, blocks); FIELD(tier_attr, atime_ns);
  FIELD(tier_attr, mtime_ns); FIELD(tier_attr, ctime_ns); FIELD(tier_attr, origin); FIELD(tier_attr, reserved);
  SIZE(tier_entry);
  FIELD(tier_entry, name); FIELD(tier_entry, name_bytes); FIELD(tier_entry, ino); FIELD(tier_entry, type); FIELD(tier_entry, reserved);
  FIELD(tier_entry, position);
  SIZE(tier_statistics);
  FIELD(tier_statistics, size); FIELD(tier_statistics, reads); FIELD(tier_statistics, bytes); FIELD(tier_statistics, fallback);
  FIELD(tier_statistics, leases); FIELD(tier_statistics, frozen_leases); FIELD(tier_statistics, leased_bytes); FIELD(tier_statistics, mapped_bytes);
  FIELD(tier_statistics, sessions); FIELD(tier_statistics, connected); FIELD(tier_statistics, hung); FIELD(tier_statistics, page_kind);
  FIELD(tier_statistics, reserved);
}

TEST(AbiGolden, Libtier) {
  std::ostringstream out;
  out << "== values\n";
  VALUE(TIER_ABI_VERSION);
  VALUE(TIER_CACHED); VALUE(TIER_NOWAIT); VALUE(TIER_NOFOLLOW); VALUE(TIER_COPY); VALUE(TIER_RECURSIVE);
  VALUE(TIER_FROM_RAM); VALUE(TIER_FROM_SSD); VALUE(TIER_FROM_SOURCE); VALUE(TIER_FROM_BYPASS);
  VALUE(TIER_REQUIRE_DAEMON); VALUE(TIER_CHECK_OPEN); VALUE(TIER_POPULATE);
  VALUE(TIER_ORIGINS); VALUE(TIER_FALLBACKS);
  out << "== structs (x86-64)\n";
  ClientStructs(out);
  out << "== declarations" << Declarations(std::string(TIERD_SOURCE_DIR) + "/client_lib/include/tier/tier.h");
  Compare("libtier.abi.txt", out.str());
}

TEST(AbiGolden, LibtierExportsItsFunctionsAndNothingElse) {
  if (!std::string(TIERD_SANITIZE).empty()) GTEST_SKIP() << "sanitizers export symbols of their own";
  const tierctl::Ran nm = tierctl::RunProgram({"/bin/sh", "-c", "nm -D --defined-only --with-symbol-versions " TIERD_LIBTIER " | cut -d' ' -f2- | LC_ALL=C sort"}, {}, "");
  ASSERT_EQ(nm.exit_code, 0) << nm.err;
  Compare("libtier.symbols.txt", nm.out);
  // Every function of the header is among them, with a version.
  const std::string header = Declarations(std::string(TIERD_SOURCE_DIR) + "/client_lib/include/tier/tier.h");
  const std::regex function("TIER_API [^;(]*?(tier_[a-z_]+)\\(");
  int functions = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), function), end; it != end; ++it, ++functions)
    EXPECT_NE(nm.out.find("T " + (*it)[1].str() + "@@TIER_"), std::string::npos) << (*it)[1];
  EXPECT_GE(functions, 26);
}

TEST(AbiGolden, Policy) {
  std::ostringstream out;
  out << "== values\n";
  VALUE(TIERD_POLICY_ABI_VERSION); VALUE(TIERD_TIER_RAM); VALUE(TIERD_TIER_SSD); VALUE(TIERD_POLICY_TIERS); VALUE(TIERD_NO_OBJECT); VALUE(TIERD_TIME_NONE);
  out << "== structs (x86-64)\n";
  SIZE(tierd_policy_env);
  FIELD(tierd_policy_env, seed); FIELD(tierd_policy_env, capacity_bytes); FIELD(tierd_policy_env, parameters);
  SIZE(tierd_object);
  FIELD(tierd_object, id); FIELD(tierd_object, file_id); FIELD(tierd_object, chunk); FIELD(tierd_object, bytes);
  SIZE(tierd_access);
  FIELD(tierd_access, id); FIELD(tierd_access, time_ns); FIELD(tierd_access, consumer); FIELD(tierd_access, tier); FIELD(tierd_access, reserved);
  SIZE(tierd_plan);
  FIELD(tierd_plan, consumer); FIELD(tierd_plan, epoch); FIELD(tierd_plan, ids); FIELD(tierd_plan, count);
  SIZE(tierd_hint);
  FIELD(tierd_hint, kind); FIELD(tierd_hint, ids); FIELD(tierd_hint, values); FIELD(tierd_hint, count);
  SIZE(tierd_candidate);
  FIELD(tierd_candidate, id); FIELD(tierd_candidate, due_ns);
  SIZE(tierd_policy_ops);
  FIELD(tierd_policy_ops, name); FIELD(tierd_policy_ops, summary); FIELD(tierd_policy_ops, create); FIELD(tierd_policy_ops, destroy);
  FIELD(tierd_policy_ops, object_known); FIELD(tierd_policy_ops, object_forgotten); FIELD(tierd_policy_ops, accessed); FIELD(tierd_policy_ops, inserted);
  FIELD(tierd_policy_ops, removed); FIELD(tierd_policy_ops, capacity); FIELD(tierd_policy_ops, epoch_boundary); FIELD(tierd_policy_ops, plan);
  FIELD(tierd_policy_ops, admit); FIELD(tierd_policy_ops, victims); FIELD(tierd_policy_ops, next); FIELD(tierd_policy_ops, worth);
  FIELD(tierd_policy_ops, admit_for); FIELD(tierd_policy_ops, soon); FIELD(tierd_policy_ops, hint);
  out << "== declarations" << Declarations(std::string(TIERD_SOURCE_DIR) + "/policies/tierd_policy.h");
  Compare("tierd_policy.abi.txt", out.str());
}

}  // namespace
}  // namespace tierd
