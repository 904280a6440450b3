// Finds policies by name: the built-in ones and those that users drop into the policy directory as shared objects.
//
// Owner: main.cc builds one Registry and passes it to the engine; it outlives every PolicyInstance (code of a .so is mapped as long
// as the registry lives and is never unloaded earlier). Thread rule: none of its own, use it from one thread (loading a .so runs
// the constructors of foreign code and may block on the disk: at start-up or on a worker, never in a turn of the loop).
// It does not: create instances (policy_instance.h), watch the directory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policies/tierd_policy.h"
#include "tierd/base/status.h"
#include "tierd/base/unique_fd.h"

namespace tierd::policies {

// The policy of a dataset that names none: fill once and evict only what nobody reads any more, and where the order is known, by it.
inline constexpr std::string_view kDefaultPolicy = "auto";

// The tables of the built-in policies. Valid for ever.
std::span<const tierd_policy_ops* const> BuiltinPolicies();

// Checks a table that foreign code hands out: abi_version, struct_size, name ([a-z0-9_-]{1,31}), summary, required functions.
// `origin` (a path) opens the sentence of the error. kUnsupported: made for another ABI; kInvalid: anything else.
Status CheckPolicyOps(const tierd_policy_ops* ops, std::string_view origin);

// One policy of a shared object. Its table lives as long as this does; movable.
class PolicyLibrary {
 public:
  PolicyLibrary(PolicyLibrary&&) noexcept = default;
  PolicyLibrary& operator=(PolicyLibrary&&) noexcept = default;

  // As this host knows the struct: fields that an older policy does not have are NULL.
  const tierd_policy_ops& ops() const { return *ops_; }
  const std::string& path() const { return path_; }

 private:
  friend Result<PolicyLibrary> LoadPolicy(const std::string& path);
  friend Result<PolicyLibrary> LoadTrustedPolicy(const std::string& path);
  struct Close {
    Close() noexcept : file(-1) {}
    void operator()(void* handle) const;
    // Owned: the dynamic linker knows the code by this number, so it stays open as long as the code is
    // there. -1: none.
    int file;
  };
  PolicyLibrary() = default;
  // `file`: what is loaded; not valid: what lies at `path`.
  static Result<PolicyLibrary> Open(const std::string& path, UniqueFd file);

  std::unique_ptr<void, Close> handle_;
  std::unique_ptr<tierd_policy_ops> ops_;  // own allocation: its address survives a move of this object
  std::string path_;
};

// Opens a .so (absolute path; RTLD_NOW | RTLD_LOCAL) and checks it. kNotFound: no such file; kInvalid: no shared object, no
// tierd_policy_get, or a table that CheckPolicyOps refuses; kUnsupported: other ABI version.
Result<PolicyLibrary> LoadPolicy(const std::string& path);

// The same for a .so that nobody named: kPermission if somebody else may have written it, or may write
// to a directory on the way (tierd/base/trusted_path.h). What is loaded is the very file that was checked.
Result<PolicyLibrary> LoadTrustedPolicy(const std::string& path);

class Registry {
 public:
  struct Entry {
    const tierd_policy_ops* ops;
    std::string path;  // "" for a built-in one
  };

  Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Adds the policy of one .so and returns its table; kExists when the name is taken (a built-in one cannot be replaced).
  Result<const tierd_policy_ops*> Load(const std::string& path);

  // Adds every *.so of the directory, in the order of their names, if nobody but root and this user may
  // have put it there (LoadTrustedPolicy). A policy that does not load costs only itself: one status
  // each comes back. A directory that does not exist holds no policies. At most kMaxLoaded are taken.
  std::vector<Status> LoadDirectory(const std::string& directory);

  // kNotFound names the policies that there are. The table lives as long as the registry.
  Result<const tierd_policy_ops*> Find(std::string_view name) const;

  // Built-in ones first, then in the order of loading.
  const std::vector<Entry>& entries() const { return entries_; }

  static constexpr std::size_t kMaxLoaded = 64;

 private:
  Result<const tierd_policy_ops*> Add(const std::string& path, Result<PolicyLibrary> (*load)(const std::string&));

  std::vector<Entry> entries_;
  std::vector<PolicyLibrary> libraries_;
};

}  // namespace tierd::policies
