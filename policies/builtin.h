// The tables of the policies that are part of the daemon. Static, valid for ever; listed by BuiltinPolicies() in registry.h.
#pragma once

#include "policies/tierd_policy.h"

namespace tierd::policies {

const tierd_policy_ops* LruPolicy();
const tierd_policy_ops* FreezePolicy();
const tierd_policy_ops* AutoPolicy();
const tierd_policy_ops* BeladyPolicy();
const tierd_policy_ops* EpochPolicy();
const tierd_policy_ops* S3FifoPolicy();
const tierd_policy_ops* RandomPolicy();
const tierd_policy_ops* FifoPolicy();
const tierd_policy_ops* LfuPolicy();
const tierd_policy_ops* FrequencyPolicy();
const tierd_policy_ops* ImportancePolicy();

}  // namespace tierd::policies
