/* A library of the other C library that has a name which the preload library exports, and that libc does not have. */
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags) { return ring == (void *)0 && flags == 0 ? (int)entries + 1 : -1; }
