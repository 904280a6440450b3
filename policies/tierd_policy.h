/* tierd policy ABI, version 1, revision 3. A policy decides who may enter a tier, who leaves it and what to bring next. It is a small pure
 * object: it does no I/O, reads no clock, draws no randomness of its own (seed and times are passed in), starts no thread. The same
 * object code runs in the daemon, in the simulator and in tests, and from a .so that a user drops into the policy directory.
 *
 * Conventions
 *  1. C linkage, C types. The host is the caller; every call of one instance comes from one thread.
 *  2. Structs grow at the end only. `struct_size` is sizeof the struct as its *writer* knew it: read no field beyond it.
 *     A function pointer of tierd_policy_ops may be NULL where the comment says "optional".
 *  3. Objects are chunks. The host names them by dense 32-bit ids, which it reuses after object_forgotten().
 *  4. Tiers are TIERD_TIER_RAM and TIERD_TIER_SSD. One instance serves one dataset and sees both tiers.
 *  5. An answer is advice: the host may be unable to follow it (a leased frame, a full disk) and says what really happened through
 *     the events. It never trusts a policy: ids out of range, duplicates and objects not in the tier are ignored and counted.
 *  6. A call should take below 10 microseconds: whoever waits for the daemon waits for it, too. Nothing enforces that; a policy that takes longer is seen in
 *     tierd_loop_lag_seconds.
 */
#ifndef TIERD_POLICY_H_
#define TIERD_POLICY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TIERD_POLICY_ABI_VERSION 1u
/* What was appended since revision 1: by revision 2 tierd_plan.first (a reserved field that was 0), admit_for, soon; by revision 3 hint. Tables and hosts of any revision of
 * one version work together: what the other side does not know is not called, not read, or 0. */
#define TIERD_POLICY_ABI_REVISION 3u
#define TIERD_TIER_RAM 0u
#define TIERD_TIER_SSD 1u
#define TIERD_POLICY_TIERS 2u
#define TIERD_NO_OBJECT UINT32_MAX
#define TIERD_TIME_NONE INT64_MAX /* "never" or "unknown" */
#define TIERD_CONSUMER_ALL UINT32_MAX /* all consumers of the dataset; in a plan: merged by time of use */

/* Why an object would enter a tier. */
#define TIERD_FOR_READER 0u  /* a reader asked for it and waits; accessed() for that read follows */
#define TIERD_AHEAD 1u       /* nobody has asked yet: prefetch, warm-up, a restart */
#define TIERD_DEMOTION 2u    /* it is leaving the faster tier */
#define TIERD_COPY 3u        /* it has just been read into the faster tier, where it stays: a copy as well? */

/* What a policy is created with. Valid during create() only; copy what you keep. */
struct tierd_policy_env {
  uint32_t abi_version;
  uint32_t struct_size;
  uint64_t seed;                              /* for policies that draw; the same seed gives the same decisions */
  uint64_t capacity_bytes[TIERD_POLICY_TIERS]; /* at creation; changes come as capacity() */
  const char* parameters;                     /* "key=value,key=value" of the configuration, "" if none */
};

struct tierd_object {
  uint32_t struct_size;
  uint32_t id;
  uint32_t file_id;      /* chunks of one file share it */
  uint32_t chunk;        /* number within the file */
  uint64_t bytes;        /* payload of this chunk */
};

struct tierd_access {
  uint32_t struct_size;
  uint32_t id;
  int64_t time_ns;       /* monotonic; never decreases between calls by more than the drain interval */
  uint32_t consumer;     /* session id: one training process */
  uint8_t tier;          /* where the bytes were: TIERD_TIER_*, 2 = source, 3 = read past the cache */
  uint8_t reserved[3];
};

/* A declared or predicted order of one consumer: objects in the order of use. Valid during the call. Epochs come in order, and an epoch
 * may come in several calls: `first` says how many of its ids earlier calls gave. ids that are not known are passed over. A host that
 * follows several consumers merges their orders by time of use and declares the result for TIERD_CONSUMER_ALL; then it declares no
 * others. count 0 withdraws all that was declared for the consumer: it reads something else. */
struct tierd_plan {
  uint32_t struct_size;
  uint32_t consumer;
  uint32_t epoch;
  uint32_t first;        /* revision 2; before that reserved, and 0: an epoch came in one call */
  const uint32_t* ids;
  size_t count;
};

struct tierd_admission {
  uint32_t struct_size;
  uint32_t tier;
  uint32_t id;
  uint32_t why;          /* TIERD_FOR_READER, TIERD_AHEAD, ...; a policy takes values it does not know for TIERD_AHEAD */
  uint64_t bytes_free;   /* in the tier, now */
};

/* What an application says of objects, by the files that they belong to. Valid during the call. The latest word on an object counts; nothing is said again to a policy
 * that comes later. */
#define TIERD_HINT_PRIORITY 0u /* values: how often it will be read, or how much it is worth to have, relative to the others; finite, 0 or more, 0 as before the first */
struct tierd_hint {
  uint32_t struct_size;
  uint32_t kind;         /* TIERD_HINT_*; a policy passes over those that it does not know */
  const uint32_t* ids;
  const double* values;  /* one per id */
  size_t count;
};

struct tierd_candidate {
  uint32_t id;
  uint32_t reserved;
  int64_t due_ns;        /* when it will be needed; TIERD_TIME_NONE if unknown */
};

struct tierd_policy_ops {
  uint32_t abi_version;  /* TIERD_POLICY_ABI_VERSION */
  uint32_t struct_size;  /* sizeof(struct tierd_policy_ops) */
  const char* name;      /* [a-z0-9_-]{1,31}, static */
  const char* summary;   /* one line for `tierctl policy list`, static */

  /* Returns the instance, or NULL with a sentence in error (NUL-terminated, at most error_bytes). */
  void* (*create)(const struct tierd_policy_env* env, char* error, size_t error_bytes);
  void (*destroy)(void* self);

  /* Events. */
  void (*object_known)(void* self, const struct tierd_object* object);  /* also when its size changed */
  void (*object_forgotten)(void* self, uint32_t id);
  void (*accessed)(void* self, const struct tierd_access* access);
  void (*inserted)(void* self, uint32_t tier, uint32_t id);
  void (*removed)(void* self, uint32_t tier, uint32_t id);
  void (*capacity)(void* self, uint32_t tier, uint64_t bytes);          /* optional; what the tier may hold from now on, by configuration and by what memory and disk allow */
  /* The consumer has begun this epoch, the first being 0 and not told. A host that has to see it from the reads says it late (the daemon: for TIERD_CONSUMER_ALL, and once
   * a quarter as many files as the last epoch had have been read again), or never of epochs that read other objects each. */
  void (*epoch_boundary)(void* self, uint32_t consumer, uint32_t epoch); /* optional */
  void (*plan)(void* self, const struct tierd_plan* plan);              /* optional */

  /* Questions. */
  /* May this object enter the tier now, given that bytes_free are free there? 1 yes, 0 no. When it does not fit into bytes_free, a yes
   * promises that victims() will name others to go. */
  int (*admit)(void* self, uint32_t tier, uint32_t id, uint64_t bytes_free);
  /* Objects of the tier that may leave so that `bytes` come free, least valuable first; writes at most max ids, returns how many.
   * 0: nobody may leave. May be called again with more asked when some could not leave. */
  size_t (*victims)(void* self, uint32_t tier, uint64_t bytes, uint32_t* ids, size_t max);
  /* What to bring into the tier next, most urgent first; at most max. Optional: NULL brings nothing by itself. */
  size_t (*next)(void* self, uint32_t tier, int64_t now_ns, struct tierd_candidate* out, size_t max);
  /* Relative worth of keeping this object in the tier, larger = keep; only compared with each other (SSD reclaim adds them up
   * over a region and moves objects worth more than 0). Optional: NULL counts each object as 1. */
  double (*worth)(void* self, uint32_t tier, uint32_t id);

  /* Revision 2. */
  /* As admit, and says why. Optional: asked instead of admit where it is there. */
  int (*admit_for)(void* self, const struct tierd_admission* admission);
  /* The host is about to speak of these objects: load their state into the processor's cache. Changes nothing. Optional. */
  void (*soon)(void* self, const uint32_t* ids, size_t count);

  /* Revision 3. */
  /* The application has told something of objects. ids that are not known are passed over. Optional. */
  void (*hint)(void* self, const struct tierd_hint* hint);
};

/* The one symbol a policy .so exports. Returns a static struct. */
const struct tierd_policy_ops* tierd_policy_get(void);

#ifdef __cplusplus
}
#endif
#endif /* TIERD_POLICY_H_ */
