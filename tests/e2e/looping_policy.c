/* A policy that does not return once something was read. */
#include <stdlib.h>

#include "policies/tierd_policy.h"

static void* create(const struct tierd_policy_env* env, char* error, size_t error_bytes) {
  (void)env, (void)error, (void)error_bytes;
  return malloc(1);
}
static void on_object(void* self, const struct tierd_object* object) { (void)self, (void)object; }
static void on_id(void* self, uint32_t id) { (void)self, (void)id; }
static void on_access(void* self, const struct tierd_access* access) {
  (void)self, (void)access;
  for (volatile int forever = 1; forever;) {
  }
}
static void on_tier_id(void* self, uint32_t tier, uint32_t id) { (void)self, (void)tier, (void)id; }
static int admit(void* self, uint32_t tier, uint32_t id, uint64_t bytes_free) {
  (void)self, (void)tier, (void)id, (void)bytes_free;
  return 1;
}
static size_t victims(void* self, uint32_t tier, uint64_t bytes, uint32_t* ids, size_t max) {
  (void)self, (void)tier, (void)bytes, (void)ids, (void)max;
  return 0;
}

const struct tierd_policy_ops* tierd_policy_get(void) {
  static const struct tierd_policy_ops ops = {
      .abi_version = TIERD_POLICY_ABI_VERSION, .struct_size = sizeof ops, .name = "looping",
      .summary = "never returns", .create = create, .destroy = free, .object_known = on_object,
      .object_forgotten = on_id, .accessed = on_access, .inserted = on_tier_id,
      .removed = on_tier_id, .admit = admit, .victims = victims};
  return &ops;
}
