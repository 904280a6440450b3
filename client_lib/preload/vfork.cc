// vfork returns twice on one stack: what the child calls after it runs over the frame of whoever made the system call. So the wrapper has no frame: it keeps its
// return address in a register across the call, as libc's own does. Before it, everything of ours becomes real, and the thread is marked: the child
// runs on it and on our memory, and must change no table (calls_process.cc).
#if defined(__x86_64__)
__asm__(R"(
  .text
  .globl vfork
  .type vfork, @function
vfork:
  .cfi_startproc
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call tierd_before_vfork
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  .cfi_register %rip, %rdi
  movl $58, %eax
  syscall
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rip, 0
  testq %rax, %rax
  jz 1f
  movq %rax, %rdi
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call tierd_after_vfork
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
1:
  ret
  .cfi_endproc
  .size vfork, .-vfork
)");
#else
#include <unistd.h>

#include "client_lib/preload/next.h"

// A vfork child may do less than a fork child, so fork serves both.
TIERD_EXPORT(int, vfork, void) { return ::fork(); }
#endif
