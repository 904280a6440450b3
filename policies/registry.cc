#include "policies/registry.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "policies/builtin.h"
#include "tierd/base/trusted_path.h"

namespace tierd::policies {
namespace {

constexpr std::size_t kMaxNameBytes = 31;
constexpr std::size_t kMaxSummaryBytes = 200;
// The oldest table that this host takes ends with `worth`; a later version that appends fields keeps this bound.
constexpr std::uint32_t kMinOpsBytes = offsetof(tierd_policy_ops, worth) + sizeof(tierd_policy_ops::worth);

Status Bad(std::string_view origin, const std::string& what, Code code = Code::kInvalid) {
  return Status(code, std::string(origin) + ": " + what);
}

bool IsPolicyName(const char* name) {
  const std::size_t bytes = ::strnlen(name, kMaxNameBytes + 1);
  if (bytes == 0 || bytes > kMaxNameBytes) return false;
  return std::all_of(name, name + bytes, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// The name of a required function that is missing, or nullptr.
const char* MissingFunction(const tierd_policy_ops& ops) {
  if (ops.create == nullptr) return "create";
  if (ops.destroy == nullptr) return "destroy";
  if (ops.object_known == nullptr) return "object_known";
  if (ops.object_forgotten == nullptr) return "object_forgotten";
  if (ops.accessed == nullptr) return "accessed";
  if (ops.inserted == nullptr) return "inserted";
  if (ops.removed == nullptr) return "removed";
  if (ops.admit == nullptr) return "admit";
  if (ops.victims == nullptr) return "victims";
  return nullptr;
}

std::string NameOf(int file) { return "/proc/self/fd/" + std::to_string(file); }

std::string LastDlError() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown reason" : text;
}

}  // namespace

std::span<const tierd_policy_ops* const> BuiltinPolicies() {
  static const std::array kBuiltin = {AutoPolicy(), FreezePolicy(), LruPolicy(),  BeladyPolicy(), EpochPolicy(),    S3FifoPolicy(),
                                      RandomPolicy(), FifoPolicy(), LfuPolicy(),    FrequencyPolicy(), ImportancePolicy()};
  return kBuiltin;
}

Status CheckPolicyOps(const tierd_policy_ops* ops, std::string_view origin) {
  if (ops == nullptr) return Bad(origin, "tierd_policy_get() returned NULL");
  if (ops->abi_version != TIERD_POLICY_ABI_VERSION) {
    return Bad(origin, "made for policy ABI " + std::to_string(ops->abi_version) + ", this tierd speaks " +
                           std::to_string(TIERD_POLICY_ABI_VERSION) + ": rebuild it against this tierd_policy.h",
               Code::kUnsupported);
  }
  if (ops->struct_size < kMinOpsBytes) {
    return Bad(origin, "struct_size is " + std::to_string(ops->struct_size) + " bytes, ABI " +
                           std::to_string(TIERD_POLICY_ABI_VERSION) + " needs at least " + std::to_string(kMinOpsBytes));
  }
  if (ops->name == nullptr || !IsPolicyName(ops->name)) return Bad(origin, "the policy's name is not of the form [a-z0-9_-]{1,31}");
  const std::string named = "policy " + std::string(ops->name) + ": ";
  if (ops->summary == nullptr || ::strnlen(ops->summary, kMaxSummaryBytes + 1) > kMaxSummaryBytes ||
      std::strchr(ops->summary, '\n') != nullptr) {
    return Bad(origin, named + "the summary is not one line of at most " + std::to_string(kMaxSummaryBytes) + " bytes");
  }
  if (const char* missing = MissingFunction(*ops)) return Bad(origin, named + missing + "() is missing");
  return Status::Ok();
}

void PolicyLibrary::Close::operator()(void* handle) const {
  ::dlclose(handle);
  if (file < 0) return;
  // Code that cannot be unloaded keeps its name, so no other file may have that number.
  if (void* const stays = ::dlopen(NameOf(file).c_str(), RTLD_NOW | RTLD_NOLOAD)) ::dlclose(stays);
  else ::close(file);
}

Result<PolicyLibrary> PolicyLibrary::Open(const std::string& path, UniqueFd file) {
  PolicyLibrary library;
  library.path_ = path;
  const std::string name = file.valid() ? NameOf(file.get()) : path;
  library.handle_.reset(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (library.handle_ == nullptr) {
    std::string why = LastDlError();
    if (const std::size_t at = why.find(name); at != std::string::npos) why.replace(at, name.size(), path);
    return Bad(path, "cannot be loaded: " + why);
  }
  library.handle_.get_deleter().file = file.Release();
  using GetFunction = const tierd_policy_ops* (*)();
  const auto get = reinterpret_cast<GetFunction>(::dlsym(library.handle_.get(), "tierd_policy_get"));
  if (get == nullptr) return Bad(path, "exports no tierd_policy_get(): " + LastDlError());

  const tierd_policy_ops* theirs = get();
  if (Status status = CheckPolicyOps(theirs, path); !status.ok()) return status;
  library.ops_ = std::make_unique<tierd_policy_ops>();
  std::memcpy(library.ops_.get(), theirs, std::min<std::size_t>(theirs->struct_size, sizeof(tierd_policy_ops)));
  library.ops_->struct_size = sizeof(tierd_policy_ops);
  return library;
}

Result<PolicyLibrary> LoadPolicy(const std::string& path) {
  // dlopen() would search the library path for a name without a slash: only what the user named is meant.
  if (path.empty() || path.front() != '/') return Bad(path, "a policy is loaded by its absolute path");
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return Status::FromErrno(errno, "policy " + path);
  if (!S_ISREG(st.st_mode)) return Bad(path, "not a regular file");
  return PolicyLibrary::Open(path, UniqueFd());
}

Result<PolicyLibrary> LoadTrustedPolicy(const std::string& path) {
  Result<UniqueFd> file = OpenTrusted(path, O_RDONLY | O_NOCTTY | O_NONBLOCK, "policy");
  if (!file.ok()) return file.status();
  struct stat st {};
  if (::fstat(file->get(), &st) != 0) return Status::FromErrno(errno, "policy " + path);
  if (!S_ISREG(st.st_mode)) return Bad(path, "not a regular file");
  return PolicyLibrary::Open(path, std::move(*file));
}

Registry::Registry() {
  for (const tierd_policy_ops* ops : BuiltinPolicies()) entries_.push_back({ops, ""});
}

Result<const tierd_policy_ops*> Registry::Load(const std::string& path) { return Add(path, LoadPolicy); }

Result<const tierd_policy_ops*> Registry::Add(const std::string& path, Result<PolicyLibrary> (*load)(const std::string&)) {
  if (libraries_.size() >= kMaxLoaded) {
    return Status(Code::kNoSpace, path + ": " + std::to_string(kMaxLoaded) + " policies are loaded, no more are taken");
  }
  Result<PolicyLibrary> library = load(path);
  if (!library.ok()) return library.status();
  const tierd_policy_ops* ops = &library->ops();
  for (const Entry& entry : entries_) {
    if (std::strcmp(entry.ops->name, ops->name) != 0) continue;
    return Status(Code::kExists, path + ": a policy named " + ops->name + " is there already (" +
                                     (entry.path.empty() ? "built in" : entry.path) + ")");
  }
  libraries_.push_back(std::move(*library));
  entries_.push_back({ops, path});
  return ops;
}

std::vector<Status> Registry::LoadDirectory(const std::string& directory) {
  std::vector<Status> problems;
  Result<UniqueFd> opened = OpenTrusted(directory, O_RDONLY | O_DIRECTORY, "policy directory");
  if (!opened.ok()) {
    if (opened.status().sys_errno() != ENOENT) problems.push_back(opened.status());
    return problems;
  }
  DIR* const dir = ::fdopendir(opened->get());
  if (dir == nullptr) return {Status::FromErrno(errno, "policy directory " + directory)};
  (void)opened->Release();  // closedir's
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir)) {
    if (std::string_view(entry->d_name).ends_with(".so")) names.emplace_back(entry->d_name);
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (Result<const tierd_policy_ops*> loaded = Add(directory + "/" + name, LoadTrustedPolicy); !loaded.ok()) problems.push_back(loaded.status());
  }
  return problems;
}

Result<const tierd_policy_ops*> Registry::Find(std::string_view name) const {
  std::string known;
  for (const Entry& entry : entries_) {
    if (name == entry.ops->name) return entry.ops;
    known += (known.empty() ? "" : ", ") + std::string(entry.ops->name);
  }
  return Status(Code::kNotFound, "no policy is named \"" + std::string(name) + "\"; there are: " + known);
}

}  // namespace tierd::policies
