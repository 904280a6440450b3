#include "tierd/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

namespace tierd {
namespace {

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(Status::Ok().ok());
  EXPECT_EQ(status.sys_errno(), 0);
  EXPECT_EQ(status.ToString(), "ok");
}

TEST(Status, CarriesCodeMessageAndErrno) {
  const Status status(Code::kCorrupt, "record 4: wrong checksum", EIO);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_EQ(status.sys_errno(), EIO);
  EXPECT_EQ(status.ToString(), "corrupt: record 4: wrong checksum");
}

TEST(Status, MapsErrnoToCode) {
  const struct {
    int sys_errno;
    Code code;
  } table[] = {{ENOENT, Code::kNotFound}, {ENOTDIR, Code::kNotFound},  {ESTALE, Code::kNotFound},  {ENOSPC, Code::kNoSpace},
               {EDQUOT, Code::kNoSpace},  {ENOMEM, Code::kNoSpace},    {EMFILE, Code::kNoSpace},   {EACCES, Code::kPermission},
               {EPERM, Code::kPermission}, {EINVAL, Code::kInvalid},   {ELOOP, Code::kInvalid},    {EBUSY, Code::kBusy},
               {EAGAIN, Code::kBusy},     {ETIMEDOUT, Code::kTimeout}, {ENOSYS, Code::kUnsupported}, {EEXIST, Code::kExists},
               {ECANCELED, Code::kStopped}, {EIO, Code::kIo},          {EROFS, Code::kIo}};
  for (const auto& row : table) {
    const Status status = Status::FromErrno(row.sys_errno, "open /data/x");
    EXPECT_EQ(status.code(), row.code) << row.sys_errno;
    EXPECT_EQ(status.sys_errno(), row.sys_errno);
  }
  EXPECT_EQ(Status::FromErrno(ENOENT, "open /data/x").message(), "open /data/x: No such file or directory");
}

TEST(Status, EveryCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::kStopped); ++code) names.insert(CodeName(static_cast<Code>(code)));
  EXPECT_EQ(names.size(), 12U);
  EXPECT_EQ(names.count("unknown"), 0U);
  EXPECT_STREQ(CodeName(static_cast<Code>(200)), "unknown");
}

TEST(Result, HoldsAValueOrAStatus) {
  const Result<int> value(7);
  EXPECT_TRUE(value.ok());
  EXPECT_EQ(*value, 7);
  EXPECT_TRUE(value.status().ok());
  const Result<int> failed(Status(Code::kBusy, "later"));
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), Code::kBusy);
}

TEST(Result, MovesOutWhatItHolds) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(3));
  EXPECT_EQ(**result, 3);
  EXPECT_EQ(*result.operator->()->get(), 3);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 3);
}

}  // namespace
}  // namespace tierd
