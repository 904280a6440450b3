/*
 * libtier: read files of a slow source through tierd, the node's cache. C ABI, stable; needs libc only.
 *
 *   tier_view view;
 *   int error = tier_get(NULL, "/pfs/train/img_0001.jpg", &view, 0);   // zero-copy when cached
 *   if (error == 0) { decode(view.data, view.size); tier_release(&view); }
 *
 * Conventions
 *  1. Results. A function that returns int gives 0 or a negative errno (-ENOENT); one that returns ssize_t or int64_t gives a count >= 0 or a
 *     negative errno. Errors are those the source itself gives for the path (ENOENT, EACCES, EISDIR, EIO ...), plus ENOMEM for a copy that found no memory,
 *     EINVAL for a wrong argument and, of an open file, ESTALE where nobody has its version any more (tier_file_pread). A dead, hung or missing tierd is
 *     never an error: the call reads the source itself (convention 5). tier_connect, tier_stats and the advice (tier_prefetch, tier_evict, tier_pin, tier_unpin,
 *     tier_invalidate) give EDEADLK inside another call of the library, such as in a signal handler that came amid one: nothing was done then.
 *  2. errno is never changed, whatever happens.
 *  3. Nothing here prints, aborts, exits, throws, installs a signal handler or starts a thread. (TIERD_LOG=1 allows lines on stderr.)
 *  4. Paths are absolute or relative to the working directory, NUL-terminated, shorter than PATH_MAX. A hit needs no system call if the path is
 *     absolute and has no "//", "." or ".." component; relative paths cost one getcwd; ".." and a last "." or '/' are left to the source and counted.
 *  5. Bypass. What tierd cannot serve is read from the source by the calling thread, with its own credentials, as open + read would. Every such read is counted
 *     by reason (tier_stats). With TIER_CACHED the call returns -ENODATA instead and touches no source.
 *  6. `client` may be NULL: the process-wide client of tier_default().
 *  7. Threads. Every function may be called by any thread at any time; a tier_client, tier_file is shared freely; one tier_view or tier_listing is used by one
 *     thread at a time, and may be released by another one than it was got by. tier_close, tier_disconnect: no other call on the same object may run or follow.
 *  8. Fork. A child goes on with everything it inherited: views and files stay valid until it releases them or ends; it opens a session of its own when it first
 *     needs one. Views held at the time of a fork keep their memory in the cache until parent and children have ended, so hold few of them then.
 *  9. A view is read-only memory of the cache. It must not be given to sendfile, splice, vmsplice, MSG_ZEROCOPY, io_uring SEND_ZC, RDMA or mprotect:
 *     what the kernel still holds after tier_release may change. write() and send() copy: they are fine. Release a view soon: past a cap per
 *     process (a share of the RAM tier) views are private copies.
 * 10. A read returns bytes that the file held at one moment no older than the staleness bound of its dataset (tierd's configuration); a tier_file stays with the
 *     version it was opened with. tier_invalidate makes own changes visible at once.
 * 11. Structs that a caller allocates and that may grow begin with `size`: set it to sizeof the struct; the library writes no more than that.
 *
 * Environment, read when the first client is made: TIERD_SOCKET (path of the daemon's socket; default $XDG_RUNTIME_DIR/tierd/tierd.sock, else
 * /tmp/tierd-UID/tierd.sock), TIERD_PREFIX (colon-separated directories: only paths below them use the cache), TIERD_DISABLE=1 (plain POSIX), TIERD_LOG=1.
 */
#ifndef TIER_TIER_H
#define TIER_TIER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(__GNUC__)
#define TIER_API __attribute__((visibility("default")))
#else
#define TIER_API
#endif

#ifdef __cplusplus
extern "C" {
#define TIER_NOEXCEPT noexcept
#else
#define TIER_NOEXCEPT
#endif

/* Grows by one whenever something is added; nothing is ever removed or changed. tier_abi_version() tells that of the library loaded. */
#define TIER_ABI_VERSION 1

typedef struct tier_client tier_client;
typedef struct tier_file tier_file;
typedef struct tier_listing tier_listing;

/* Flags of the calls that take a path; others than these are -EINVAL. tier_get, tier_get_batch, tier_read_file, tier_pread: CACHED, NOWAIT, COPY. tier_open, tier_list:
   CACHED, NOWAIT. tier_stat: CACHED, NOWAIT, NOFOLLOW. tier_prefetch ... tier_invalidate: RECURSIVE. */
#define TIER_CACHED 1u   /* do not read the source: -ENODATA when the cache (daemon included) cannot serve */
#define TIER_NOWAIT 2u   /* do not wait for the daemon either: only what is in RAM now; implies TIER_CACHED. All that is asked of the daemon is where that memory is,
                            once for each segment that this process meets, or for a session while there is none, for 20 ms at most */
#define TIER_NOFOLLOW 4u /* tier_stat: of a symbolic link itself, as lstat */
#define TIER_COPY 8u     /* tier_get, tier_get_batch: always a private copy (it may be kept for long and given to the kernel) */
#define TIER_RECURSIVE 16u /* tier_prefetch ... tier_invalidate: everything below a directory */

/* Where bytes came from. Values are part of the ABI. */
enum tier_origin {
  TIER_FROM_RAM = 0,    /* shared memory */
  TIER_FROM_SSD = 1,    /* tierd read them from its SSD tier */
  TIER_FROM_SOURCE = 2, /* tierd read them from the source */
  TIER_FROM_BYPASS = 3  /* this process read them from the source itself */
};

/* ---- client ------------------------------------------------------------------------------------------------------------------ */

typedef struct tier_options {
  size_t size;          /* sizeof(tier_options); less is -EINVAL */
  const char* socket;   /* NULL: the environment's or the default one; copied */
  uint32_t timeout_ms;  /* longest wait for the daemon per call before the source is read; 0: the default, 1000; 1..1000, more is -EINVAL. A call that reads several chunks
                           may wait so long for each of them, as long as they come */
  uint32_t flags;       /* TIER_REQUIRE_DAEMON | TIER_CHECK_OPEN | TIER_POPULATE */
} tier_options;

#define TIER_REQUIRE_DAEMON 1u /* tier_connect fails when no daemon can be had now (-ECONNREFUSED, -EPROTO, -EACCES) */
#define TIER_CHECK_OPEN 2u     /* ask the source with this process's credentials at each open and get (stat and open) and stat, whatever the dataset says */
#define TIER_POPULATE 4u       /* fault mappings in when they are made: a slower start, no page fault at the first hit of each page */

/*
 * Makes a client of its own. `options` may be NULL. Succeeds without a daemon too, unless TIER_REQUIRE_DAEMON: then the source is read, and
 * the daemon looked for again every 5 s. One that is there and does not greet is waited for 500 ms, then looked for after 1, 2, 4, 5, 5 ... s, by one thread.
 * Errors: -ENOMEM, -EINVAL, -EDEADLK (convention 1), and those of TIER_REQUIRE_DAEMON; `*client` is NULL then.
 */
TIER_API int tier_connect(const tier_options* options, tier_client** client) TIER_NOEXCEPT;

/* Ends a client that tier_connect made. Views and files got through it must have been released and closed. NULL and tier_default() are left alone. */
TIER_API void tier_disconnect(tier_client* client) TIER_NOEXCEPT;

/* The process-wide client, made at the first call; lives as long as the process. Never NULL, never disconnected. */
TIER_API tier_client* tier_default(void) TIER_NOEXCEPT;

/* "0.1.0" of the library loaded. */
TIER_API const char* tier_version(void) TIER_NOEXCEPT;
TIER_API uint32_t tier_abi_version(void) TIER_NOEXCEPT;

/* ---- whole files ------------------------------------------------------------------------------------------------------------- */

/* The bytes of a file, or of a piece of one. Fields ending in _ are the library's. */
typedef struct tier_view {
  const void* data; /* `size` bytes, contiguous; not NULL even when size is 0 */
  size_t size;
  uint32_t origin;  /* enum tier_origin */
  uint32_t kind_;
  uint64_t opaque_[3];
} tier_view;

/*
 * The whole file, contiguous. A cached file of one chunk (default: up to 4 MiB) is given in place, at no system call. A larger one is put together by mapping its
 * chunks side by side (a system call per chunk) or, where their memory cannot be mapped so, copied: for pieces of large files use tier_open and tier_file_pin.
 * On success `view` must be released. Errors: those of open and read; -EISDIR for a directory, -EINVAL for other things that are no regular file; `view` is then
 * zeroed and need not be released.
 */
TIER_API int tier_get(tier_client* client, const char* path, tier_view* view, unsigned flags) TIER_NOEXCEPT;

/* Gives a view back and zeroes it. NULL and a zeroed view are left alone. */
TIER_API void tier_release(tier_view* view) TIER_NOEXCEPT;

/*
 * tier_get of `count` paths with one wait for all that are not in RAM: the daemon brings them up in parallel. One wait is for 256 files or some 16 MiB at most, for
 * they are all held in memory until it ends: longer lists take several. Files of several chunks are waited for one by one. errors[i] is 0 or a negative errno, as
 * of tier_get; `errors` may be NULL. Returns the number of views got; those must be released (the others are zeroed: tier_release does no harm).
 */
TIER_API ssize_t tier_get_batch(tier_client* client, const char* const* paths, size_t count, tier_view* views, int* errors,
                                unsigned flags) TIER_NOEXCEPT;

/*
 * Copies a file into `buffer`: min(capacity, file size) bytes. Returns the bytes copied and stores the size of the file in `*file_size` (NULL: don't): more than
 * `capacity` means that the rest is missing.
 */
TIER_API ssize_t tier_read_file(tier_client* client, const char* path, void* buffer, size_t capacity, uint64_t* file_size,
                                unsigned flags) TIER_NOEXCEPT;

/* Copies up to `count` bytes from `offset` on. Fewer only at the end of the file; 0 behind it. -EINVAL for a negative offset. */
TIER_API ssize_t tier_pread(tier_client* client, const char* path, void* buffer, size_t count, int64_t offset,
                            unsigned flags) TIER_NOEXCEPT;

/* ---- open files -------------------------------------------------------------------------------------------------------------- */

typedef struct tier_attr {
  uint64_t size;   /* of this struct, set by the caller; below 8, such as 0, is -EINVAL */
  uint64_t dev;    /* all as stat gives them on the source */
  uint64_t ino;
  uint64_t bytes;  /* st_size */
  uint32_t mode;
  uint32_t nlink;
  uint32_t uid;
  uint32_t gid;
  uint64_t blksize;
  uint64_t blocks; /* of 512 bytes; from the cache: what `bytes` takes in blocks of 4 KiB */
  int64_t atime_ns; /* since 1970; from the cache: as the source showed it when it was last asked; hits do not change it.
                       Any of the three is INT64_MIN or INT64_MAX where the file's own time lies before 1677 or after 2262 */
  int64_t mtime_ns;
  int64_t ctime_ns;
  uint32_t origin; /* TIER_FROM_RAM: the shared index; TIER_FROM_SOURCE: asked tierd; TIER_FROM_BYPASS: stat of the source */
  uint32_t reserved;
} tier_attr;

/*
 * Opens a regular file for reading. The file is bound to the version it has now: a rename-replace or rewrite behind it never mixes bytes of two versions. A file
 * that is not wholly cached holds a descriptor of the source (close-on-exec). Errors: those of open; -EISDIR, -EINVAL as tier_get. `*file` is NULL after
 * an error; only a wrong argument (NULL, a flag of another call) leaves it as it was. A file that was opened at the source (a bypass: tier_stats has the reason) is
 * read as open + pread would: replaced by rename it stays what it was, written in place behind it it shows the new bytes.
 */
TIER_API int tier_open(tier_client* client, const char* path, tier_file** file, unsigned flags) TIER_NOEXCEPT;
TIER_API void tier_close(tier_file* file) TIER_NOEXCEPT; /* NULL is left alone */

/* What stat gave when the file was opened. No system call. */
TIER_API int tier_fstat(tier_file* file, tier_attr* attr) TIER_NOEXCEPT;

/*
 * As pread: copies up to `count` bytes from `offset` on. Fewer only at the end of the file. -ESTALE: the source has another version of
 * the file by now, and the cache no longer has what is wanted of the one that was opened. The file is to be opened anew.
 */
TIER_API ssize_t tier_file_pread(tier_file* file, void* buffer, size_t count, int64_t offset) TIER_NOEXCEPT;

/*
 * A zero-copy pread: a view of bytes from `offset` on, at least one and at most `count` of them, cut at the next chunk boundary; size 0 at the end of the
 * file, and anywhere with `count` 0. A loop over it walks through a file of any size without copying. Must be released, may outlive the file. On error `view` is zeroed; -ESTALE
 * as of tier_file_pread.
 */
TIER_API int tier_file_pin(tier_file* file, int64_t offset, size_t count, tier_view* view) TIER_NOEXCEPT;

/* ---- metadata ---------------------------------------------------------------------------------------------------------------- */

/* stat (lstat with TIER_NOFOLLOW) from the shared index where it knows the path. That a file is missing is always asked of the source. */
TIER_API int tier_stat(tier_client* client, const char* path, tier_attr* attr, unsigned flags) TIER_NOEXCEPT;

typedef struct tier_entry {
  const char* name;    /* NUL-terminated; lives until the next call on the listing */
  size_t name_bytes;
  uint64_t ino;
  uint32_t type;       /* DT_* of <dirent.h> */
  uint32_t reserved;
  uint64_t position;   /* for tier_list_seek: of the entry that follows */
} tier_entry;

/* Listing of a directory without "." and "..", in the order of the source. Errors: those of opendir. */
TIER_API int tier_list(tier_client* client, const char* path, tier_listing** listing, unsigned flags) TIER_NOEXCEPT;
TIER_API int tier_list_next(tier_listing* listing, tier_entry* entry) TIER_NOEXCEPT; /* 1: an entry; 0: no more */
TIER_API int tier_list_seek(tier_listing* listing, uint64_t position) TIER_NOEXCEPT; /* 0: the start; -EINVAL: no such position */
TIER_API void tier_list_close(tier_listing* listing) TIER_NOEXCEPT;                  /* NULL is left alone */

/* ---- advice ------------------------------------------------------------------------------------------------------------------ */

/*
 * For files, or with TIER_RECURSIVE directories; without it nothing below a directory is brought, pinned, dropped or let go of (a job of tierd that was to bring one says so). Evict returns the number of files and directories concerned, unpin that of files, prefetch and pin that of paths taken up (a directory is
 * one, its files are found later); or the first error: -ENOTCONN without a daemon, -ETIMEDOUT when it did not answer, -ENOENT when a path is below no source. Every 256 paths of a prefetch or pin are
 * one job of tierd; fewer than were asked for: 256 jobs run already, ask for the rest again.
 *   prefetch    bring up in the background      evict   drop from RAM and SSD (the source is never touched)
 *   pin         keep until unpin                unpin   let go
 */
TIER_API int64_t tier_prefetch(tier_client* client, const char* const* paths, size_t count, unsigned flags) TIER_NOEXCEPT;
TIER_API int64_t tier_evict(tier_client* client, const char* const* paths, size_t count, unsigned flags) TIER_NOEXCEPT;
TIER_API int64_t tier_pin(tier_client* client, const char* const* paths, size_t count, unsigned flags) TIER_NOEXCEPT;
TIER_API int64_t tier_unpin(tier_client* client, const char* const* paths, size_t count, unsigned flags) TIER_NOEXCEPT;

/*
 * The files changed (written, renamed, unlinked, truncated): after this returns, no process of this node is served the old bytes, by whatever name it reads them:
 * the kernel is asked for the names of what a path leads to and of its directory (three to seven system calls at the source). Hard links go
 * with the one that is named, as far as the daemon has met them as such (not one that it has read before the other was made). Returns the number of files and directories concerned; a path below no source is 0. When the daemon cannot confirm
 * (-ETIMEDOUT; without a daemon 0), this process reads the source until it could be told. Of several paths all are told, whatever becomes of one; then the first
 * error is returned. A symbolic link that was made, changed or removed is told of with TIER_RECURSIVE: names lead through it.
 */
TIER_API int64_t tier_invalidate(tier_client* client, const char* const* paths, size_t count, unsigned flags) TIER_NOEXCEPT;

/* ---- statistics -------------------------------------------------------------------------------------------------------------- */

#define TIER_ORIGINS 4
#define TIER_FALLBACKS 32
typedef struct tier_statistics {
  uint64_t size;                     /* sizeof(tier_statistics) */
  uint64_t reads[TIER_ORIGINS];      /* calls that ended well, by enum tier_origin; one call counts once (a pin at the end of a file not at all) */
  uint64_t bytes[TIER_ORIGINS];
  uint64_t fallback[TIER_FALLBACKS]; /* reads of the source by this process, by reason: tier_fallback_name */
  uint64_t leases;                   /* views and files that hold cache memory now */
  uint64_t frozen_leases;            /* of these: held over a fork */
  uint64_t leased_bytes;             /* large views only: a view below 1/4096 of the cap is not counted */
  uint64_t mapped_bytes;             /* of cache memory in the address space */
  uint64_t sessions;                 /* opened since the start */
  uint32_t connected;                /* 1: a session is up */
  uint32_t hung;                     /* 1: the daemon is there and does not answer; the source is read meanwhile */
  uint32_t page_kind;                /* of the cache memory: 0 4 KiB, 1 hugetlb, 2 shmem huge, 3 tmpfs huge */
  uint32_t reserved;
} tier_statistics;

/* Counts of this client in this process since it was made (a forked child starts at 0). Exact. */
TIER_API int tier_stats(tier_client* client, tier_statistics* statistics) TIER_NOEXCEPT;

/* "no_daemon", "timeout" ...: label of metric tierd_fallback_total. "unknown" for a number that has no meaning. */
TIER_API const char* tier_fallback_name(uint32_t reason) TIER_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
