// The page that one client writes and the daemon reads (abi::SessionPage): leases, access ring, counters. A memfd that nobody can
// resize; the client maps it read-write. Everything in it but the daemon's own words is hostile input (HAZARDS W5).
//
// Owner: the session (tierd/server). Loop thread only; Create may run on any thread.
#pragma once

#include <cstdint>

#include "client_lib/abi/layout.h"
#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"

namespace tierd::ram {

struct SessionPageOptions {
  std::uint32_t session_id = 0;
  std::uint8_t instance[16] = {};
  std::uint64_t pin_cap_bytes = 0;
};

class SessionPage {
 public:
  // Creates, fills in the daemon's words, seals SHRINK|GROW|SEAL. A few system calls, ~20 us.
  static Result<SessionPage> Create(const SessionPageOptions& options);
  SessionPage(SessionPage&& other) noexcept;
  SessionPage& operator=(SessionPage&& other) noexcept;
  ~SessionPage();

  // For SCM_RIGHTS.
  int client_fd() const { return fd_.get(); }
  // Once the client has it: the mapping stays.
  void CloseFile() { fd_.Reset(); }
  // The mapping. Copy each word once, then bound the copy.
  abi::SessionPage* page() const { return page_; }
  static constexpr std::uint64_t kBytes = sizeof(abi::SessionPage);

  // HAZARDS 2.5: the socket is gone, the process is not.
  // HAZARDS 2.14: names below mounts may mean other files to the client.
  void NoteMountsChanged() { page_->mounts_changed.fetch_add(1, std::memory_order_release); }
  void Revoke() { page_->revoked.store(1, std::memory_order_seq_cst); }

 private:
  SessionPage() = default;
  UniqueFd fd_;
  abi::SessionPage* page_ = nullptr;
};

}  // namespace tierd::ram
