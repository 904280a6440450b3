// Calls that change whose rights count: user ids, groups, capabilities (credentials.h).
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <cstring>

#include "client_lib/preload/calls.h"
#include "client_lib/preload/credentials.h"
#include "client_lib/preload/raw.h"

using namespace tierd::preload;

TIERD_NEXT(int, setuid, uid_t)
TIERD_NEXT(int, seteuid, uid_t)
TIERD_NEXT(int, setreuid, uid_t, uid_t)
TIERD_NEXT(int, setresuid, uid_t, uid_t, uid_t)
TIERD_NEXT(int, setfsuid, uid_t)
TIERD_NEXT(int, setgid, gid_t)
TIERD_NEXT(int, setegid, gid_t)
TIERD_NEXT(int, setregid, gid_t, gid_t)
TIERD_NEXT(int, setresgid, gid_t, gid_t, gid_t)
TIERD_NEXT(int, setfsgid, gid_t)
TIERD_NEXT(int, setgroups, size_t, const gid_t*)
TIERD_NEXT(int, initgroups, const char*, gid_t)
TIERD_NEXT(int, capset, void*, const void*)

namespace tierd::preload {

Credentials::Credentials() {
  const auto id = [](long number) { return static_cast<std::uint32_t>(raw::Call(number, -1)); };  // nobody's id: setfsuid and setfsgid say what there is, and leave it
  ids_[0] = id(SYS_geteuid), ids_[1] = id(SYS_getegid), ids_[2] = id(SYS_setfsuid), ids_[3] = id(SYS_setfsgid);
  groups_ = raw::Call(SYS_getgroups, kGroups, raw::Address(group_));
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (raw::Call(SYS_capget, raw::Address(&head), raw::Address(sets)) == 0) capabilities_ = std::uint64_t{sets[1].effective} << 32 | sets[0].effective;
}

bool Credentials::DifferFrom(const Credentials& before) const {
  if (std::memcmp(ids_, before.ids_, sizeof ids_) != 0 || capabilities_ != before.capabilities_) return true;
  return groups_ < 0 || groups_ != before.groups_ || std::memcmp(group_, before.group_, sizeof group_) != 0;
}

bool AsksForOthers(long get, std::initializer_list<std::uint32_t> wanted) {
  std::uint32_t real, effective, saved;
  if (raw::Call(get, raw::Address(&real), raw::Address(&effective), raw::Address(&saved)) != 0 || real != effective || saved != effective) return true;
  for (const std::uint32_t id : wanted) {
    if (id != ~std::uint32_t{0} && id != effective) return true;
  }
  return false;
}

}  // namespace tierd::preload

namespace {

template <typename Change>
int ChangeIds(long get, std::initializer_list<std::uint32_t> wanted, Change change) {
  return Active() && AsksForOthers(get, wanted) ? ChangeCredentials(change) : change();
}

}  // namespace

TIERD_EXPORT(int, setuid, uid_t id) {
  return ChangeIds(SYS_getresuid, {id}, [=] { return Next_setuid()(id); });
}
TIERD_EXPORT(int, seteuid, uid_t effective) {
  return ChangeIds(SYS_getresuid, {effective}, [=] { return Next_seteuid()(effective); });
}
TIERD_EXPORT(int, setreuid, uid_t real, uid_t effective) {
  return ChangeIds(SYS_getresuid, {real, effective}, [=] { return Next_setreuid()(real, effective); });
}
TIERD_EXPORT(int, setresuid, uid_t real, uid_t effective, uid_t saved) {
  return ChangeIds(SYS_getresuid, {real, effective, saved}, [=] { return Next_setresuid()(real, effective, saved); });
}
TIERD_EXPORT(int, setfsuid, uid_t id) {
  return ChangeIds(SYS_getresuid, {id}, [=] { return Next_setfsuid()(id); });
}
TIERD_EXPORT(int, setgid, gid_t id) {
  return ChangeIds(SYS_getresgid, {id}, [=] { return Next_setgid()(id); });
}
TIERD_EXPORT(int, setegid, gid_t effective) {
  return ChangeIds(SYS_getresgid, {effective}, [=] { return Next_setegid()(effective); });
}
TIERD_EXPORT(int, setregid, gid_t real, gid_t effective) {
  return ChangeIds(SYS_getresgid, {real, effective}, [=] { return Next_setregid()(real, effective); });
}
TIERD_EXPORT(int, setresgid, gid_t real, gid_t effective, gid_t saved) {
  return ChangeIds(SYS_getresgid, {real, effective, saved}, [=] { return Next_setresgid()(real, effective, saved); });
}
TIERD_EXPORT(int, setfsgid, gid_t id) {
  return ChangeIds(SYS_getresgid, {id}, [=] { return Next_setfsgid()(id); });
}
TIERD_EXPORT(int, setgroups, size_t count, const gid_t* groups) {
  return ChangeCredentials([=] { return Next_setgroups()(count, groups); });
}
TIERD_EXPORT(int, initgroups, const char* user, gid_t group) {
  return ChangeCredentials([=] { return Next_initgroups()(user, group); });
}
TIERD_EXPORT(int, capset, void* head, const void* sets) {
  return ChangeCredentials([=] { return Next_capset()(head, sets); });
}
