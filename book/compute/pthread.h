/* pthread.h -- all that ref/core/variants.c needs of threads, for WebAssembly without
 * threads: wasi-libc has no pthread.h. */
typedef int pthread_once_t;
#define PTHREAD_ONCE_INIT 0
static inline int pthread_once(pthread_once_t *once, void (*run)(void))
{
    if (!*once) run();
    *once = 1;
    return 0;
}
