// The tables of the policies that are part of the daemon. Static, valid for ever; listed by BuiltinPolicies() in registry.h.
#pragma once

#include "policies/tierd_policy.h"

namespace tierd::policies {

const tierd_policy_ops* LruPolicy();
const tierd_policy_ops* FreezePolicy();

}  // namespace tierd::policies
