#include "tierd/ram/session_page.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tierd/ram/shared_file.h"

namespace tierd::ram {

Result<SessionPage> SessionPage::Create(const SessionPageOptions& options) {
  SessionPage made;
  Result<UniqueFd> fd = MakeMemfd("tierd-session", kBytes);
  if (!fd.ok()) return fd.status();
  made.fd_ = std::move(*fd);
  if (Status status = AllocateFile(made.fd_.get(), kBytes); !status.ok()) return status;
  void* mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd_.get(), 0);
  if (mapped == MAP_FAILED) return Status::FromErrno(errno, "mmap session page");
  made.page_ = static_cast<abi::SessionPage*>(mapped);
  // Fresh pages are zero: every lease free, every counter 0.
  made.page_->magic = abi::kSessionMagic;
  made.page_->layout_version = abi::kLayoutVersion;
  made.page_->session_id = options.session_id;
  std::memcpy(made.page_->instance, options.instance, sizeof options.instance);
  made.page_->pin_cap_bytes = options.pin_cap_bytes;
  // The client maps it writable: mode and FUTURE_WRITE stay as they are, only the size is fixed.
  if (::fcntl(made.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return Status::FromErrno(errno, "seal session page");
  return made;
}

SessionPage::SessionPage(SessionPage&& other) noexcept : fd_(std::move(other.fd_)), page_(std::exchange(other.page_, nullptr)) {}

SessionPage& SessionPage::operator=(SessionPage&& other) noexcept {
  if (this == &other) return *this;
  if (page_ != nullptr) ::munmap(page_, kBytes);
  fd_ = std::move(other.fd_);
  page_ = std::exchange(other.page_, nullptr);
  return *this;
}

SessionPage::~SessionPage() {
  if (page_ != nullptr) ::munmap(page_, kBytes);
}

}  // namespace tierd::ram
