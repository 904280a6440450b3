/* mru: the most recently used object leaves first. When every epoch reads each object once, what was just read is what will be
 * needed last. Build it against the installed header only:  cc -shared -fPIC -O2 -I PREFIX/include -o mru.so mru.c */
#include <stdlib.h>
#include <tierd/tierd_policy.h>
#define NONE UINT32_MAX
struct object { uint64_t bytes; uint32_t newer[2], older[2]; uint8_t here[2]; };
struct mru { struct object* objects; uint32_t limit; uint32_t newest[2]; uint64_t capacity[2]; };

static void* create(const struct tierd_policy_env* env, char* error, size_t error_bytes) {
  struct mru* m = calloc(1, sizeof *m);
  for (int t = 0; m != NULL && t < 2; t++) { m->newest[t] = NONE; m->capacity[t] = env->capacity_bytes[t]; }
  if (m == NULL && error_bytes > 0) error[0] = '\0'; /* a sentence would stand here */
  return m;
}
static void destroy(void* self) { free(((struct mru*)self)->objects); free(self); }
static void object_known(void* self, const struct tierd_object* o) {
  struct mru* m = self;
  if (o->id >= m->limit) {
    uint32_t limit = o->id * 2 + 1024;
    struct object* grown = realloc(m->objects, limit * sizeof *grown);
    if (grown == NULL) return; /* every other function ignores ids from limit on */
    for (uint32_t i = m->limit; i < limit; i++) grown[i] = (struct object){0};
    m->objects = grown; m->limit = limit;
  }
  m->objects[o->id].bytes = o->bytes;
}
static void removed(void* self, uint32_t t, uint32_t id) {
  struct mru* m = self;
  if (id >= m->limit || !m->objects[id].here[t]) return;
  uint32_t newer = m->objects[id].newer[t], older = m->objects[id].older[t];
  *(newer == NONE ? &m->newest[t] : &m->objects[newer].older[t]) = older;
  if (older != NONE) m->objects[older].newer[t] = newer;
  m->objects[id].here[t] = 0;
}
static void object_forgotten(void* self, uint32_t id) { removed(self, 0, id); removed(self, 1, id); }
static void inserted(void* self, uint32_t t, uint32_t id) {
  struct mru* m = self;
  if (id >= m->limit || m->objects[id].here[t]) return;
  m->objects[id].here[t] = 1; m->objects[id].newer[t] = NONE; m->objects[id].older[t] = m->newest[t];
  if (m->newest[t] != NONE) m->objects[m->newest[t]].newer[t] = id;
  m->newest[t] = id;
}
static void accessed(void* self, const struct tierd_access* a) {
  struct mru* m = self;
  for (uint32_t t = 0; t < 2; t++)
    if (a->id < m->limit && m->objects[a->id].here[t]) { removed(m, t, a->id); inserted(m, t, a->id); }
}
static int admit(void* self, uint32_t t, uint32_t id, uint64_t bytes_free) {
  struct mru* m = self; (void)bytes_free;
  return id < m->limit && m->objects[id].bytes <= m->capacity[t];
}
static size_t victims(void* self, uint32_t t, uint64_t bytes, uint32_t* ids, size_t max) {
  struct mru* m = self; size_t n = 0;
  for (uint32_t id = m->newest[t]; id != NONE && n < max && bytes > 0; id = m->objects[id].older[t])
    ids[n++] = id, bytes -= m->objects[id].bytes < bytes ? m->objects[id].bytes : bytes;
  return n;
}
static const struct tierd_policy_ops ops = {TIERD_POLICY_ABI_VERSION, sizeof ops, "mru", "the most recently used object leaves first",
  create, destroy, object_known, object_forgotten, accessed, inserted, removed, NULL, NULL, NULL, admit, victims, NULL, NULL, NULL, NULL, NULL};
const struct tierd_policy_ops* tierd_policy_get(void) { return &ops; }
