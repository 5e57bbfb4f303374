/* omit.c -- judges a kernel on one case, each time without another of its waits.
 *
 * Book: users.md, "Find a race".
 *
 * Usage: kcp-check-omit STAGE VARIANT CASE RUNS LIMIT. Reads a place and its kind
 * (omit.cuh) per line of stdin, and prints a line "place, verdict, reason" for each.
 * Place 4294967295 omits nothing, and marks the places that run in the file
 * KCP_OMIT_MARKS. Place 0 omits nothing either, but copies of the kind are late. Each
 * place runs in a new process, up to RUNS times. The linker sends every launch of a
 * kernel through this file (--wrap), because the variables of omit.cuh must be set in
 * the process that launches. The GPU seems to have KCP_OMIT_SMS
 * multiprocessors (2), so that each block of a small case fills its buffers several
 * times.
 *
 * All runs have the same inputs, so what an earlier run has left must not be right.
 * Workspaces are NaN or 0 before each run. Before about half of the launches, a kernel
 * fills shared memory with NaN (poison.cu). The other launches follow the kernel before
 * directly, because programmatic dependent launch must still start kernels early.
 */
#define _DEFAULT_SOURCE                        /* for MAP_ANONYMOUS */
#include "tests/judge/isolation.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OBJECTS = 256, MARKS = 1 << 20 };
static const void *variable[OBJECTS];
static int variables, sms;
static unsigned launches, *hung;               /* *hung is shared by the processes */
static _Thread_local int in_poison;
static pthread_once_t once = PTHREAD_ONCE_INIT;

int kcp_omission_add(const void *symbol);
int kcp_poison(int sms, struct CUstream_st *stream);
const void *kcp_omission_of(unsigned place, unsigned kind, unsigned *hung,
                            unsigned char *marks, size_t *bytes);
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel,
                                       void **arguments);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel,
                                       void **arguments);
cudaError_t __real___cudaLaunchKernel(cudaKernel_t kernel, struct dim3 grid,
                                      struct dim3 block, void **arguments,
                                      size_t bytes, cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, struct dim3 grid,
                                      struct dim3 block, void **arguments,
                                      size_t bytes, cudaStream_t stream);

cudaError_t __real_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a,
                                          int device);
cudaError_t __wrap_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a,
                                          int device);
int __wrap_leftovers_fill(const void *rank, void *work, size_t bytes, int which);

/* Leaves the workspace of every second repeated run NaN, and makes the others 0. */
int __wrap_leftovers_fill(const void *rank, void *work, size_t bytes, int which)
{
    static int runs;
    (void)rank, (void)which;
    return runs++ % 2 ? cudaMemset(work, 0, bytes) || cudaDeviceSynchronize() : 0;
}

static void stop_if(int bad, const char *what)
{
    if (!bad) return;
    fprintf(stderr, "kcp-check-omit: %s failed\n", what);
    _exit(3);
}

/* Returns the GPU's address of the file's bytes. */
static unsigned char *marks_of(const char *path)
{
    void *here, *there;
    const int file = open(path, O_RDWR | O_CREAT, 0600);
    stop_if(file < 0 || ftruncate(file, MARKS), path);
    here = mmap(NULL, MARKS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    stop_if(here == MAP_FAILED, "mmap");
    stop_if(cudaHostRegister(here, MARKS, cudaHostRegisterMapped), "cudaHostRegister");
    stop_if(cudaHostGetDevicePointer(&there, here, 0), "cudaHostGetDevicePointer");
    close(file);
    return there;
}

static void set_variables(void)
{
    const char *text = getenv("KCP_OMIT"), *marks = getenv("KCP_OMIT_MARKS");
    unsigned place = 0, kind = 0;
    size_t bytes;
    if (text) sscanf(text, "%u %u", &place, &kind);
    const int marking = place == ~0u;
    stop_if(marking && !marks, "KCP_OMIT_MARKS=: no file; marking");
    void *flag;
    stop_if(cudaHostRegister(hung, 4096, cudaHostRegisterMapped) ||
            cudaHostGetDevicePointer(&flag, hung, 0), "cudaHostRegister");
    in_poison = 1;
    const void *x = kcp_omission_of(place, kind, flag, marking ? marks_of(marks) : NULL,
                                    &bytes);
    in_poison = 0;
    stop_if(!x, "cudaMalloc");
    stop_if(__real_cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0),
            "cudaDeviceGetAttribute");
    for (int i = 0; i < variables; i++)
        stop_if(cudaMemcpyToSymbol(variable[i], x, bytes, 0, cudaMemcpyHostToDevice),
                "cudaMemcpyToSymbol");
}

int kcp_omission_add(const void *symbol)
{
    if (variables == OBJECTS) abort();
    variable[variables++] = symbol;
    return variables;
}

/* Poisons shared memory before every second launch, on average. */
static void before_launch(cudaStream_t stream)
{
    if (in_poison) return;
    pthread_once(&once, set_variables);
    const unsigned n = __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED) * 0x9e3779b9u;
    if (n >> 31) return;
    in_poison = 1;
    stop_if(kcp_poison(sms, stream), "poison");
    in_poison = 0;
}

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel,
                                       void **arguments)
{
    before_launch(c->stream);
    return __real_cudaLaunchKernelExC(c, kernel, arguments);
}

cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, struct dim3 grid,
                                      struct dim3 block, void **arguments,
                                      size_t bytes, cudaStream_t stream)
{
    before_launch(stream);
    return __real___cudaLaunchKernel(kernel, grid, block, arguments, bytes, stream);
}

cudaError_t __wrap_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a,
                                          int device)
{
    const cudaError_t e = __real_cudaDeviceGetAttribute(value, a, device);
    const char *sms = getenv("KCP_OMIT_SMS");
    if (!e && a == cudaDevAttrMultiProcessorCount) *value = sms ? atoi(sms) : 2;
    return e;
}

/* The outcome in one word. Different bits in a repeated run count as wrong values. */
static const char *word_of(const struct verdict *t)
{
    if (t->outcome == PASS || t->outcome == MARGINAL) return "unseen";
    if (t->outcome != FAIL) return "not-run";
    if (*hung || strstr(t->why, "time limit") || strstr(t->why, "time-outs"))
        return "hang";
    return is_wrong(&t->worst) || strstr(t->why, "differs") ? "values" : "error";
}

int main(int argc, char **argv)
{
    char line[64], why[160] = "";
    struct kcase k;
    const struct kcp_variant *v = NULL;
    const struct kcp_stage *s = argc == 6 ? stage_find(argv[1]) : NULL;
    if (!s || !kcp_variants(argv[1], argv[2], &v, 1) ||
        case_parse(argv[3], &k, why, sizeof why)) {
        fprintf(stderr, "usage: kcp-check-omit STAGE VARIANT CASE RUNS LIMIT: %s\n",
                why);
        return 2;
    }
    memory_settle();
    hung = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    stop_if(hung == MAP_FAILED, "mmap");
    case_repeats = atoi(argv[4]) - 1;
    isolation_limit = atoi(argv[5]);
    isolation_start = 15;
    while (fgets(line, sizeof line, stdin)) {
        struct isolated x = { .stage = s, .variant = v, .list = &k };
        struct verdict t = { .outcome = SKIP };
        line[strcspn(line, "\n")] = 0;
        setenv("KCP_OMIT", line, 1);
        *hung = 0;
        repeats_begin();
        isolated_case(&x, 0, v->storage, &t);
        why[0] = 0;
        line[strcspn(line, " ")] = 0;
        const int late = isolated_end(&x, why, sizeof why);
        if (late && t.outcome != FAIL) printf("%s\terror\t%s\n", line, why);
        else printf("%s\t%s\t%s %s %.1e\n", line, word_of(&t), t.why, t.worst.field,
                    t.worst.err);
        fflush(stdout);
    }
    return 0;
}
