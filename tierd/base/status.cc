#include "tierd/base/status.h"

#include <cerrno>
#include <cstring>

namespace tierd {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalid: return "invalid";
    case Code::kNotFound: return "not found";
    case Code::kNoSpace: return "no space";
    case Code::kPermission: return "permission";
    case Code::kIo: return "i/o error";
    case Code::kCorrupt: return "corrupt";
    case Code::kBusy: return "busy";
    case Code::kTimeout: return "timeout";
    case Code::kUnsupported: return "unsupported";
    case Code::kExists: return "exists";
    case Code::kStopped: return "stopped";
  }
  return "unknown";
}

namespace {
Code CodeOfErrno(int sys_errno) {
  switch (sys_errno) {
    case 0: return Code::kOk;
    case ENOENT: case ENOTDIR: case ESTALE: return Code::kNotFound;
    case ENOSPC: case EDQUOT: case EFBIG: case ENOMEM: case EMFILE: case ENFILE: return Code::kNoSpace;
    case EACCES: case EPERM: return Code::kPermission;
    case EINVAL: case ENAMETOOLONG: case ELOOP: return Code::kInvalid;
    case EBUSY: case EAGAIN: return Code::kBusy;
    case ETIMEDOUT: return Code::kTimeout;
    case ENOSYS: case EOPNOTSUPP: return Code::kUnsupported;
    case EEXIST: return Code::kExists;
    case ECANCELED: return Code::kStopped;
    default: return Code::kIo;
  }
}
}  // namespace

Status Status::FromErrno(int sys_errno, std::string_view what) {
  std::string message(what);
  message += ": ";
  message += std::strerror(sys_errno);  // glibc's strerror is thread-safe for known numbers
  return Status(CodeOfErrno(sys_errno), std::move(message), sys_errno);
}

std::string Status::ToString() const {
  return ok() ? "ok" : std::string(CodeName(code_)) + ": " + message_;
}

}  // namespace tierd
