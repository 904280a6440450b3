/* Compiled once per BAD_* into a shared object that the registry must refuse, each for its own reason. */
#include "policies/tierd_policy.h"

#ifdef BAD_NO_SYMBOL
int tierd_policy_forgotten(void);
int tierd_policy_forgotten(void) { return 0; }
#else
static void* create(const struct tierd_policy_env* env, char* error, size_t error_bytes) {
  (void)error;
  (void)error_bytes;
  return (void*)env->parameters;
}
static void on_self(void* self) { (void)self; }
static void on_object(void* self, const struct tierd_object* object) { (void)self, (void)object; }
static void on_id(void* self, uint32_t id) { (void)self, (void)id; }
static void on_access(void* self, const struct tierd_access* access) { (void)self, (void)access; }
static void on_tier_id(void* self, uint32_t tier, uint32_t id) { (void)self, (void)tier, (void)id; }
static int admit(void* self, uint32_t tier, uint32_t id, uint64_t bytes_free) {
  (void)self, (void)tier, (void)id, (void)bytes_free;
  return 0;
}
static size_t victims(void* self, uint32_t tier, uint64_t bytes, uint32_t* ids, size_t max) {
  (void)self, (void)tier, (void)bytes, (void)ids, (void)max;
  return 0;
}

static struct tierd_policy_ops ops = {
    .abi_version = TIERD_POLICY_ABI_VERSION,
    .struct_size = sizeof(struct tierd_policy_ops),
    .name = "sound",
    .summary = "refuses everything",
    .create = create,
    .destroy = on_self,
    .object_known = on_object,
    .object_forgotten = on_id,
    .accessed = on_access,
    .inserted = on_tier_id,
    .removed = on_tier_id,
    .admit = admit,
    .victims = victims,
};

#ifdef BAD_GROWN
/* A policy of a later ABI 1.x: its table is longer than the host's. */
static struct {
  struct tierd_policy_ops ops;
  void* later[4];
} grown;
#endif

const struct tierd_policy_ops* tierd_policy_get(void) {
#if defined(BAD_NULL)
  return NULL;
#elif defined(BAD_VERSION)
  ops.abi_version = 99;
#elif defined(BAD_SIZE)
  ops.struct_size = 24;
#elif defined(BAD_NAME)
  ops.name = "Has Space";
#elif defined(BAD_LONG_NAME)
  ops.name = "a2345678901234567890123456789012";
#elif defined(BAD_SUMMARY)
  ops.summary = "two\nlines";
#elif defined(BAD_FUNCTION)
  ops.victims = NULL;
#elif defined(BAD_TAKEN)
  ops.name = "lru";
#elif defined(BAD_REVISION1)
  /* As built against the first header: what was appended since is beyond its end, and is anything. */
  ops.name = "revision1";
  ops.struct_size = offsetof(struct tierd_policy_ops, admit_for);
  ops.admit_for = (int (*)(void*, const struct tierd_admission*))1;
  ops.soon = (void (*)(void*, const uint32_t*, size_t))1;
  ops.hint = (void (*)(void*, const struct tierd_hint*))1;
#elif defined(BAD_GROWN)
  ops.name = "grown";
  ops.struct_size = sizeof grown;
  grown.ops = ops;
  return &grown.ops;
#endif
  return &ops;
}
#endif
