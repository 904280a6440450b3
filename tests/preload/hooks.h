/* The look-alike of a library that hooks libc (hooks.py says which doors there are). A hook takes
 * ten words and hands all of them on, whatever its function takes: that is how they are passed. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "tests/preload/by_hand.h"

#define DOOR_NEXT 1
#define DOOR_SYSCALL 2
#define DOOR_RAW 3
#define DOOR_OTHER 4
#define DOOR_GOT 5
#define NO_NUMBER (-1)

#define PARAMETERS long a, long b, long c, long d, long e, long f, long g, long h, long i, long j
#define WORDS a, b, c, d, e, f, g, h, i, j
typedef long (*function)(PARAMETERS);

/* A call that comes back to its own hook again and again does not end. */
#define MOST 12
static __thread int depth;
static void enter(const char *name) {
  if (++depth <= MOST) return;
  by_hand(SYS_write, 2, (long)"endless: ", 9, 0, 0, 0);
  by_hand(SYS_write, 2, (long)name, (long)strlen(name), 0, 0, 0);
  by_hand(SYS_write, 2, (long)"\n", 1, 0, 0, 0);
  by_hand(SYS_exit_group, 99, 0, 0, 0, 0, 0);
}
/* A child that never leaves its parent's call, and a jump out of one, count for nothing. */
static long leave(long result) {
  if (depth > 0) --depth;
  return result;
}

static long next(function *found, const char *name, PARAMETERS) {
  if (*found == NULL) *found = (function)dlsym(RTLD_NEXT, name);
#if defined(__x86_64__)
  if (*found == NULL) *found = (function)dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
#else
  if (*found == NULL) *found = (function)dlvsym(RTLD_NEXT, name, "GLIBC_2.17");
#endif
  return (*found)(WORDS);
}

static long raw(long number, long a, long b, long c, long d, long e, long f) {
  long result = by_hand(number, a, b, c, d, e, f);
  if (result >= 0 || result < -4095) return result;
  errno = (int)-result;
  return -1;
}

extern long syscall(long number, ...);
#define PLAIN(number) number, a, b, c, d, e, f
#define SIX(number) number, a, b, c, d, 0, e /* an offset in two words, then the flags */

#if DOOR == DOOR_NEXT || DOOR == DOOR_OTHER
#define END(name, number, order) next(&found_##name, #name, WORDS)
#elif DOOR == DOOR_RAW
#define END(name, number, order) \
  ((number) == NO_NUMBER ? next(&found_##name, #name, WORDS) : raw(order(number)))
#else
#define END(name, number, order) \
  ((number) == NO_NUMBER ? next(&found_##name, #name, WORDS) : syscall(order(number)))
#endif

#if DOOR == DOOR_GOT
#define HOOK(name, number, order, other)                               \
  static function found_##name;                                        \
  static long hook_##name(PARAMETERS) {                                \
    enter(#name);                                                      \
    return leave(END(name, number, order));                            \
  }
#define HOOK_OTHER HOOK
#else
#define HOOK(name, number, order, other)                               \
  static function found_##name;                                        \
  long hook_##name(PARAMETERS) __asm__(#name);                         \
  long hook_##name(PARAMETERS) {                                       \
    enter(#name);                                                      \
    return leave(END(name, number, order));                            \
  }
#if DOOR == DOOR_OTHER
#define HOOK_OTHER(name, number, order, other)                         \
  extern long other_##other(PARAMETERS) __asm__(#other);               \
  long hook_##name(PARAMETERS) __asm__(#name);                         \
  long hook_##name(PARAMETERS) {                                       \
    enter(#name);                                                      \
    return leave(other_##other(WORDS));                                \
  }
#else
#define HOOK_OTHER HOOK
#endif
#endif
HOOKS

#if DOOR == DOOR_GOT
/* Patches every slot of every loaded library that names a hooked function, as UCX does. */
struct hook {
  const char *name;
  long number;
  function hook;
};
#undef HOOK
#undef HOOK_OTHER
#define HOOK(name, number, order, other) {#name, number, hook_##name},
#define HOOK_OTHER HOOK
static const struct hook hooks[] = {HOOKS};

static const struct hook *hook_of(const char *name) {
  for (size_t n = 0; n < sizeof hooks / sizeof *hooks; ++n) {
    if (hooks[n].number != NO_NUMBER && strcmp(hooks[n].name, name) == 0) return &hooks[n];
  }
  return NULL;
}

static const void *here(const struct dl_phdr_info *info, ElfW(Addr) address) {
  return (const void *)(address < info->dlpi_addr ? address + info->dlpi_addr : address);
}

static void patch(const struct dl_phdr_info *info, const ElfW(Rela) *slots, size_t bytes,
                  const ElfW(Sym) *symbols, const char *strings) {
  for (size_t n = 0; n < bytes / sizeof *slots; ++n) {
    unsigned long type = ELF64_R_TYPE(slots[n].r_info);
#if defined(__x86_64__)
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
#else
    if (type != R_AARCH64_JUMP_SLOT && type != R_AARCH64_GLOB_DAT) continue;
#endif
    const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(slots[n].r_info)];
    const struct hook *hook = hook_of(strings + symbol->st_name);
    if (hook == NULL) continue;
    long *slot = (long *)(info->dlpi_addr + slots[n].r_offset);
    by_hand(SYS_mprotect, (long)slot & -4096, 4096, 3, 0, 0, 0);
    *slot = (long)hook->hook;
  }
}

static int patch_library(struct dl_phdr_info *info, size_t size, void *unused) {
  const ElfW(Rela) *slots = NULL, *data = NULL;
  const ElfW(Sym) *symbols = NULL;
  const char *strings = NULL;
  size_t slot_bytes = 0, data_bytes = 0;
  for (int n = 0; n < info->dlpi_phnum; ++n) {
    if (info->dlpi_phdr[n].p_type != PT_DYNAMIC) continue;
    const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[n].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_JMPREL) slots = here(info, entry->d_un.d_ptr);
      if (entry->d_tag == DT_PLTRELSZ) slot_bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_RELA) data = here(info, entry->d_un.d_ptr);
      if (entry->d_tag == DT_RELASZ) data_bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_SYMTAB) symbols = here(info, entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) strings = here(info, entry->d_un.d_ptr);
    }
  }
  if (symbols == NULL || strings == NULL || strstr(info->dlpi_name, "preload_hooks") != NULL ||
      strstr(info->dlpi_name, "ld-linux") != NULL || strstr(info->dlpi_name, "vdso") != NULL) {
    return 0;
  }
  if (slots != NULL) patch(info, slots, slot_bytes, symbols, strings);
  if (data != NULL) patch(info, data, data_bytes, symbols, strings);
  return 0;
}

__attribute__((constructor)) static void patch_all(void) { dl_iterate_phdr(patch_library, NULL); }
#endif
