/* A policy that is deliberately wrong: it fills only half of a tier, now and then lets something in for which there is no room, and then names victims that
 * nobody knows. It decides by nothing but what it is asked, so that every host that asks alike gets the same. */
#include <stdlib.h>

#include "policies/tierd_policy.h"

struct wrong {
  uint64_t capacity[TIERD_POLICY_TIERS];
  unsigned asked;
};

static void* create(const struct tierd_policy_env* env, char* error, size_t error_bytes) {
  struct wrong* self = calloc(1, sizeof *self);
  (void)error, (void)error_bytes;
  for (unsigned tier = 0; tier < TIERD_POLICY_TIERS; ++tier) self->capacity[tier] = env->capacity_bytes[tier];
  return self;
}
static void on_object(void* self, const struct tierd_object* object) { (void)self, (void)object; }
static void on_id(void* self, uint32_t id) { (void)self, (void)id; }
static void on_access(void* self, const struct tierd_access* access) { (void)self, (void)access; }
static void on_tier_id(void* self, uint32_t tier, uint32_t id) { (void)self, (void)tier, (void)id; }
static int admit(void* p, uint32_t tier, uint32_t id, uint64_t bytes_free) {
  struct wrong* self = p;
  (void)id;
  return bytes_free > self->capacity[tier] / 2 || ++self->asked % 16 == 0;
}
static size_t victims(void* self, uint32_t tier, uint64_t bytes, uint32_t* ids, size_t max) {
  (void)self, (void)tier, (void)bytes;
  for (size_t i = 0; i < max; ++i) ids[i] = TIERD_NO_OBJECT - (uint32_t)i;
  return max;
}

const struct tierd_policy_ops* tierd_policy_get(void) {
  static const struct tierd_policy_ops ops = {
      .abi_version = TIERD_POLICY_ABI_VERSION, .struct_size = sizeof ops, .name = "wrong", .summary = "deliberately", .create = create, .destroy = free,
      .object_known = on_object, .object_forgotten = on_id, .accessed = on_access, .inserted = on_tier_id, .removed = on_tier_id, .admit = admit, .victims = victims};
  return &ops;
}
