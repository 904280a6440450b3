// Errors as values. `Status` says whether an operation worked and, if not, one sentence that names its operands;
// `Result<T>` carries a value or such a status. Value types, no thread rule. They do not log and never throw.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tierd {

// Stable codes: callers branch on these, people read the message.
enum class Code : std::uint8_t {
  kOk = 0,
  kInvalid = 1,      // bad input: configuration, argument, message
  kNotFound = 2,     // no such file, key, record
  kNoSpace = 3,      // ENOSPC, EDQUOT, no frame, budget used up
  kPermission = 4,   // EACCES, EPERM
  kIo = 5,           // any other errno of a device or source
  kCorrupt = 6,      // a checksum, magic or bound does not hold
  kBusy = 7,         // somebody else holds it; try later
  kTimeout = 8,      // a deadline passed
  kUnsupported = 9,  // this kernel, format or peer cannot do it
  kExists = 10,
  kStopped = 11,     // we are shutting down
};

const char* CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, int sys_errno = 0)
      : code_(code), errno_(sys_errno), message_(std::move(message)) {}
  static Status Ok() { return Status(); }
  // A failed system call: maps errno to a code; message becomes "WHAT: strerror".
  static Status FromErrno(int sys_errno, std::string_view what);

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  // The errno behind it, 0 if none.
  int sys_errno() const { return errno_; }
  const std::string& message() const { return message_; }
  std::string ToString() const;

 private:
  Code code_ = Code::kOk;
  int errno_ = 0;
  std::string message_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose; must not be ok

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tierd
