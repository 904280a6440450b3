/* A library as Go's linker makes them: it says so in a note, and reads by system calls of its own. */
#include "tests/preload/by_hand.h"

__asm__(".section .note.go.buildid,\"a\",@note\n"
        ".balign 4\n"
        ".long 4, 4, 4\n"
        ".asciz \"Go\"\n.byte 0\n"
        ".ascii \"test\"\n"
        ".previous\n");

long go_read(int fd, void *bytes, long count) { return by_hand(SYS_read, fd, (long)bytes, count, 0, 0, 0); }
