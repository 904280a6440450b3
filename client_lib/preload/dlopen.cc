// dlopen looks for its caller's libraries by its return address, so the wrapper leaves no frame: it notes that a library may be loaded, and jumps.
#include "client_lib/preload/next.h"
#include "client_lib/preload/process.h"

#if defined(__x86_64__)
extern "C" {
__attribute__((visibility("hidden"))) tierd::preload::NextSymbol tierd_next_dlopen{"dlopen", nullptr};
__attribute__((visibility("hidden"))) tierd::preload::NextSymbol tierd_next_dlmopen{"dlmopen", nullptr};
__attribute__((visibility("hidden"))) void* tierd_resolve(tierd::preload::NextSymbol* symbol) { return tierd::preload::ResolveNext(*symbol); }
}

#define TIERD_JUMP(name)                                       \
  __asm__("  .text\n"                                          \
          "  .globl " #name "\n"                               \
          "  .type " #name ", @function\n" #name ":\n"         \
          "  .cfi_startproc\n"                                 \
          "  endbr64\n"                                        \
          "  movl $64, tierd_libraries_to_look_for(%rip)\n"    \
          "  movq 8+tierd_next_" #name "(%rip), %rax\n"        \
          "  testq %rax, %rax\n"                               \
          "  jz 1f\n"                                          \
          "  jmp *%rax\n"                                      \
          "1: pushq %rdi\n"                                    \
          "  .cfi_adjust_cfa_offset 8\n"                       \
          "  pushq %rsi\n"                                     \
          "  .cfi_adjust_cfa_offset 8\n"                       \
          "  pushq %rdx\n"                                     \
          "  .cfi_adjust_cfa_offset 8\n"                       \
          "  leaq tierd_next_" #name "(%rip), %rdi\n"          \
          "  call tierd_resolve\n"                             \
          "  popq %rdx\n"                                      \
          "  .cfi_adjust_cfa_offset -8\n"                      \
          "  popq %rsi\n"                                      \
          "  .cfi_adjust_cfa_offset -8\n"                      \
          "  popq %rdi\n"                                      \
          "  .cfi_adjust_cfa_offset -8\n"                      \
          "  jmp *%rax\n"                                      \
          "  .cfi_endproc\n"                                   \
          "  .size " #name ", .-" #name "\n")

TIERD_JUMP(dlopen);
TIERD_JUMP(dlmopen);
#endif
