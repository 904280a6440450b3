/*
 * A client of protocol version 1 and layout version 1, frozen on 2026-11-21: never edited, and it includes nothing of the project. Every offset is written
 * out, as a program that was compiled then has them. As long as tierd says that it speaks version 1, this program must read through it.
 *
 * usage: client_v1 SOCKET ROOT            relative names on standard input, each a file of one chunk
 * Reads each name twice and compares with the file; lists ROOT and looks the names up in it. Prints "ram N asked N bypass N listed N refused N".
 * Exit: 0 all right (also when the daemon refused: then the source was read), 1 wrong bytes, 2 the daemon broke the protocol.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { kHello = 1, kWelcome = 2, kRefuse = 3, kSources = 4, kGetSegment = 7, kSegment = 8, kFetch = 9, kFetchReply = 10 };
enum { kOpChunk = 1, kOpList = 3, kFrame = 1, kMeta = 2 };
enum { kLeases = 4096, kRing = 20480, kPageBytes = 53248, kMaxMessage = 65536, kMaxSegments = 1024 };

static int sock = -1;
static uint8_t message[kMaxMessage];
static const uint8_t* idx; /* index */
static uint8_t* page;      /* session page */
static uint32_t source_id;
static const uint8_t* segments[kMaxSegments];
static uint64_t segment_bytes[kMaxSegments];
static unsigned long from_ram, asked, bypassed, listed, refused;

static uint16_t U16(const uint8_t* p) { uint16_t v; memcpy(&v, p, 2); return v; }
static uint32_t U32(const uint8_t* p) { uint32_t v; memcpy(&v, p, 4); return v; }
static uint64_t U64(const uint8_t* p) { uint64_t v; memcpy(&v, p, 8); return v; }
static void Put16(uint8_t* p, uint16_t v) { memcpy(p, &v, 2); }
static void Put32(uint8_t* p, uint32_t v) { memcpy(p, &v, 4); }
static void Put64(uint8_t* p, uint64_t v) { memcpy(p, &v, 8); }
static uint64_t Load64(const uint8_t* p) { return __atomic_load_n((const uint64_t*)(const void*)p, __ATOMIC_ACQUIRE); }
static uint32_t Load32(const uint8_t* p) { return __atomic_load_n((const uint32_t*)(const void*)p, __ATOMIC_ACQUIRE); }

static void Broken(const char* what) {
  fprintf(stderr, "client_v1: %s\n", what);
  exit(2);
}

/* ---- the socket ---------------------------------------------------------------------------------------------------------------- */

static void SendMessage(uint16_t type, const uint8_t* body, uint32_t body_bytes) {
  uint8_t out[16 + 4096 + 64];
  Put32(out, 0x52454954u);
  Put16(out + 4, type);
  Put16(out + 6, 1);
  Put32(out + 8, 16 + body_bytes);
  Put32(out + 12, 1);
  memcpy(out + 16, body, body_bytes);
  if (send(sock, out, 16 + body_bytes, MSG_NOSIGNAL) != (ssize_t)(16 + body_bytes)) Broken("send");
}

/* Receives one message; its type. 0: the daemon closed or was silent for 5 s. */
static int Receive(int fds[2], size_t* bytes) {
  struct pollfd ready = {sock, POLLIN, 0};
  struct iovec part = {message, sizeof message};
  union { struct cmsghdr align; uint8_t bytes[CMSG_SPACE(2 * sizeof(int))]; } control;
  struct msghdr head = {0};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control.bytes;
  head.msg_controllen = sizeof control.bytes;
  fds[0] = fds[1] = -1;
  if (poll(&ready, 1, 5000) <= 0) return 0;
  ssize_t got = recvmsg(sock, &head, MSG_CMSG_CLOEXEC);
  if (got <= 0) return 0;
  struct cmsghdr* c = CMSG_FIRSTHDR(&head);
  if (c != NULL && c->cmsg_type == SCM_RIGHTS) memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
  if (got < 16 || U32(message) != 0x52454954u || U32(message + 8) != (uint32_t)got || U16(message + 6) != 1) Broken("header");
  *bytes = (size_t)got;
  return U16(message + 4);
}

static int Greet(const char* path, const char* root) {
  struct sockaddr_un address = {0};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connect(sock, (const struct sockaddr*)&address, sizeof address) != 0) return 0;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  uint8_t hello[24] = {0};
  Put16(hello, 1);     /* oldest spoken */
  Put16(hello + 2, 1); /* newest */
  Put32(hello + 4, 1); /* layout */
  Put64(hello + 8, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
  Put32(hello + 16, (uint32_t)getpid());
  SendMessage(kHello, hello, sizeof hello);
  int fds[2];
  size_t bytes = 0;
  int type = Receive(fds, &bytes);
  if (type == kRefuse) return 0;
  if (type != kWelcome || bytes != 16 + 56 || fds[1] < 0 || U16(message + 16) != 1) Broken("welcome");
  uint64_t index_bytes = U64(message + 16 + 32);
  if (U64(message + 16 + 40) != kPageBytes) Broken("session page");
  idx = mmap(NULL, index_bytes, PROT_READ, MAP_SHARED, fds[0], 0);
  page = mmap(NULL, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
  if (idx == MAP_FAILED || page == MAP_FAILED) Broken("mmap");
  if (U64(idx) != 0x3158444944524954ull || U32(idx + 8) != 1 || U64(page) != 0x3153455344524954ull || U32(page + 8) != 1) Broken("magic");
  if (Receive(fds, &bytes) != kSources) Broken("sources");
  const uint8_t* entry = message + 16;
  for (uint32_t i = 0; i < U32(message + 12); ++i, entry += U32(entry)) {
    if (U16(entry + 34) != strlen(root) || memcmp(entry + 40, root, strlen(root)) != 0) continue;
    source_id = U32(entry + 4);
    return 1;
  }
  Broken("source not served");
  return 0;
}

/* ---- keys, leases, the index ------------------------------------------------------------------------------------------------------ */

struct Key { uint64_t lo, hi; };

static uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

static struct Key KeyOf(const char* relative) {
  XXH128_hash_t h = XXH3_128bits_withSecret(relative, strlen(relative), idx + 72, 192);
  uint64_t s = ((uint64_t)source_id + 1) * 0x9e3779b97f4a7c15ull;
  struct Key key = {Mix(h.low64 ^ s), Mix(h.high64 + s)};
  return key;
}

static struct Key ListingKeyOf(struct Key dir) {
  struct Key key = {Mix(dir.lo ^ 0x6c697374696e6721ull), Mix(dir.hi + 0x6c697374696e6721ull)};
  return key;
}

/* One lease slot is enough: this client holds one view at a time. */
static void Lease(struct Key key) {
  uint64_t word = (key.lo ^ ((key.hi << 32) | (key.hi >> 32))) >> 16;
  __atomic_store_n((uint32_t*)(void*)(page + 64), 1, __ATOMIC_SEQ_CST);
  __atomic_exchange_n((uint64_t*)(void*)(page + kLeases), (word == 0 ? 1 : word) << 16, __ATOMIC_SEQ_CST);
}

static void Release(void) { __atomic_store_n((uint64_t*)(void*)(page + kLeases), 0, __ATOMIC_RELEASE); }

static void Record(uint32_t ordinal, uint32_t generation, uint64_t tier) {
  uint64_t at = __atomic_fetch_add((uint64_t*)(void*)(page + 128), 1, __ATOMIC_RELAXED);
  uint64_t entry = (uint64_t)ordinal | ((uint64_t)(generation & 0xff) << 32) | (tier << 52) | (((at / 4096 + 1) & 0xff) << 56);
  __atomic_store_n((uint64_t*)(void*)(page + kRing + at % 4096 * 8), entry, __ATOMIC_RELEASE);
  __atomic_fetch_add((uint64_t*)(void*)(page + 192 + tier * 8), 1, __ATOMIC_RELAXED);
}

static const uint8_t* FrameAt(uint64_t location, uint64_t length) {
  uint32_t serial = (uint32_t)(location >> 38);
  uint64_t offset = ((location >> 16) & 0x3fffff) * 64;
  if (serial >= kMaxSegments) Broken("segment serial");
  if (segments[serial] == NULL) {
    uint8_t request[16];
    int fds[2];
    size_t bytes = 0;
    Put64(request, 1000000 + serial);
    Put64(request + 8, serial);
    SendMessage(kGetSegment, request, sizeof request);
    if (Receive(fds, &bytes) != kSegment || fds[0] < 0 || U32(message + 16 + 16) != serial) Broken("segment");
    segment_bytes[serial] = U64(message + 16 + 8);
    segments[serial] = mmap(NULL, segment_bytes[serial], PROT_READ, MAP_SHARED, fds[0], 0);
    close(fds[0]);
    if (segments[serial] == MAP_FAILED) Broken("mmap segment");
  }
  if (offset + length > segment_bytes[serial]) Broken("frame beyond its segment");
  return segments[serial] + offset;
}

/* A hit under a lease, by the order of the layout's manual; NULL: ask. The lease stays on success. */
static const uint8_t* Lookup(struct Key key, uint64_t* size) {
  uint64_t count = U64(idx + 32);
  uint64_t home = (uint64_t)(((unsigned __int128)key.lo * count) >> 64);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  uint32_t ticks = (uint32_t)(((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) >> 24);
  for (uint64_t i = 0; i < U32(idx + 64); ++i) {
    const uint8_t* slot = idx + U64(idx + 48) + (home + i) * 64;
    uint32_t sequence = Load32(slot);
    uint64_t attributes = Load64(slot + 24);
    if (attributes >> 60 == 0 && sequence % 2 == 0) return NULL;
    if (sequence % 2 != 0 || Load64(slot + 8) != key.lo || Load64(slot + 16) != key.hi) continue;
    Lease(key);
    uint64_t location = Load64(slot + 32);
    attributes = Load64(slot + 24);
    uint32_t deadline = Load32(slot + 4);
    if (Load32(slot) != sequence || Load32(idx + 320) != 0 || location == 0 || attributes >> 60 != 2 || ticks >= deadline) {
      Release();
      return NULL;
    }
    *size = attributes & 0xffffffffffffull;
    Record((uint32_t)(home + i), U32(idx + 12), 0);
    return FrameAt(location, *size);
  }
  return NULL;
}

/* Asks for bytes under a lease taken before; NULL: read the source. */
static const uint8_t* Ask(const char* relative, int op, struct Key key, uint64_t* size) {
  static uint64_t next_id = 1;
  uint8_t entry[56 + 4096 + 8] = {0};
  size_t length = strlen(relative);
  uint32_t bytes = (uint32_t)((56 + length + 7) & ~(size_t)7);
  Put32(entry, bytes);
  entry[4] = (uint8_t)op;
  Put16(entry + 6, (uint16_t)length);
  Put64(entry + 8, ++next_id);
  Put32(entry + 16, source_id);
  memcpy(entry + 56, relative, length);
  Lease(key);
  SendMessage(kFetch, entry, bytes);
  for (;;) {
    int fds[2];
    size_t got = 0;
    int type = Receive(fds, &got);
    if (type == kSources) continue;
    if (type != kFetchReply || got != 16 + 104 || U64(message + 16) != next_id) Broken("fetch reply");
    break;
  }
  const uint8_t* reply = message + 16;
  *size = U64(reply + 24);
  if (reply[8] == kMeta) return (const uint8_t*)"";
  if (reply[8] != kFrame) return NULL;
  if (reply[12] > 3) Broken("tier");
  Record(U32(reply + 92), U32(reply + 96), reply[12]);
  return FrameAt(U64(reply + 16), *size);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------------------- */

static int Compare(const char* root, const char* relative, const uint8_t* bytes, uint64_t size) {
  char path[8192];
  static uint8_t plain[8 << 20];
  snprintf(path, sizeof path, "%s/%s", root, relative);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? -1 : read(fd, plain, sizeof plain);
  if (fd >= 0) close(fd);
  return got >= 0 && (bytes == NULL || ((uint64_t)got == size && memcmp(plain, bytes, size) == 0));
}

static int ReadName(const char* root, const char* relative) {
  uint64_t size = 0;
  const uint8_t* bytes = NULL;
  if (page != NULL) {
    struct Key key = KeyOf(relative);
    bytes = Lookup(key, &size);
    if (bytes != NULL) ++from_ram;
    else if ((bytes = Ask(relative, kOpChunk, key, &size)) != NULL) ++asked;
  }
  if (bytes == NULL) ++bypassed;
  int right = Compare(root, relative, bytes, size);
  if (page != NULL) Release();
  if (!right) fprintf(stderr, "client_v1: wrong bytes of %s\n", relative);
  return right;
}

/* Entries of 16 bytes and a name, padded to 8; counts those whose names stand in the list of names. */
static void ListRoot(char names[][4096], int count) {
  uint64_t size = 0;
  const uint8_t* at = Ask("", kOpList, ListingKeyOf(KeyOf("")), &size);
  for (uint64_t used = 0; at != NULL && used + 16 <= size;) {
    size_t length = U16(at + used + 8);
    for (int i = 0; i < count; ++i) listed += strlen(names[i]) == length && memcmp(names[i], at + used + 16, length) == 0;
    used += (16 + length + 7) & ~(size_t)7;
  }
  Release();
}

int main(int argc, char** argv) {
  static char names[256][4096];
  int count = 0, wrong = 0;
  if (argc != 3) return 64;
  while (count < 256 && fgets(names[count], sizeof names[0], stdin) != NULL) names[count][strcspn(names[count], "\n")] = '\0', ++count;
  if (!Greet(argv[1], argv[2])) refused = 1;
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < count; ++i) wrong += !ReadName(argv[2], names[i]);
  if (page != NULL) ListRoot(names, count);
  printf("ram %lu asked %lu bypass %lu listed %lu refused %lu\n", from_ram, asked, bypassed, listed, refused);
  return wrong != 0;
}
