/* enemy.c -- wrong variants that attack the judge to be called right: -DWAY=name.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh, which
 * wants a failure of each.  Next: tests/judge/plugin.c.
 *
 * Each returns zeros for the merged states of chapter 07, unless its way gives it
 * something better. PATCHES, SEES and FORGES were called right when a verdict was made
 * where the variant ran; PART stopped the judge for ever, RETURNS for twenty times its
 * limit, and LEAVES left a process. */
#define _GNU_SOURCE
#include "../judge.h"

#include <elf.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATCHES, SEES, SEES_PARENT, TRACES, FORGES, PART, LEAVES, PRINTS, NAMED,
       STORED, RETURNS };

/* The function that compares returns at once: nothing is off. CHECK_SLICE: where it
 * lies, as nm says. */
#ifndef CHECK_SLICE
#define CHECK_SLICE 0
#endif
static void patch(void)
{
    const Elf64_Ehdr *program = (const void *)(getauxval(AT_PHDR) - sizeof *program);
    char *code = (char *)program + CHECK_SLICE;
    const uintptr_t page = (uintptr_t)code & ~(uintptr_t)4095;
    if (mprotect((void *)page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) return;
#if defined __x86_64__
    memcpy(code, "\xc3", 1);                                        /* ret */
#elif defined __aarch64__
    memcpy(code, "\xc0\x03\x5f\xd6", 4);
    __builtin___clear_cache(code, code + 4);
#endif
}

/* Bytes of a process: this one, or the judge's. 0: all of them came. */
static int peek(pid_t pid, const void *at, void *to, size_t n)
{
    const struct iovec here = { to, n }, there = { (void *)at, n };
    return process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)n;
}

/* A tensor named S of so many numbers, where the process can be written. */
static int find_expected(pid_t pid, double *S, int64_t n)
{
    char path[64], line[400], rights[8];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "r");
    unsigned long from, to;
    int found = 0;
    while (maps && fgets(line, sizeof line, maps) && !found) {
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3) continue;
        if (rights[1] != 'w' || to - from > 256 << 20) continue;
        char *copy = malloc(to - from);
        if (copy && !peek(pid, (void *)from, copy, to - from))
            for (size_t at = 0; at + sizeof(struct tensor) <= to - from && !found;
                 at += 8) {
                const struct tensor *t = (const struct tensor *)(copy + at);
                found = !strcmp(t->name, "S") && t->n == n &&
                        !peek(pid, t->p, S, 8 * (size_t)n);
            }
        free(copy);
    }
    if (maps) fclose(maps);
    return found;
}

/* What the judge's socket carries, as tests/judge/isolation.c has it. */
struct message { int kind; uint64_t nonce; struct verdict verdict; };
enum { STARTED = 0x51, RETURNED, DONE, VERDICT = 0x54 };

static int socket_of_judge(void)
{
    int type;
    socklen_t n = sizeof type;
    for (int fd = 3; fd < 64; fd++)
        if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n)) return fd;
    return -1;
}

/* "Done", for the run; and a verdict of ours with the number that comes for it. */
static void forge(void)
{
    const int fd = socket_of_judge();
    struct message done = { .kind = DONE }, verdict = { .kind = VERDICT };
    verdict.verdict.outcome = PASS;
    if (send(fd, &done, sizeof done, MSG_NOSIGNAL) < 0) return;
    if (recv(fd, &verdict.nonce, 8, MSG_WAITALL) != 8) return;
    if (send(fd, &verdict, sizeof verdict, MSG_NOSIGNAL) < 0) return;
    if (recv(fd, &verdict.nonce, 8, MSG_WAITALL) <= 0) _exit(0);    /* the next case */
}

/* "Returned": from here on the judge's own part would run. It does not. */
static void stay(void)
{
    const struct message returned = { .kind = RETURNED };
    send(socket_of_judge(), &returned, sizeof returned, MSG_NOSIGNAL);
    for (;;) sleep(1);
}

/* A process that outlives everything: its number stands in ./left. */
static void leave(void)
{
    if (fork()) {
        while (access("left", F_OK)) usleep(1000);
        return;
    }
    setsid();
    if (fork()) _exit(0);
    FILE *f = fopen("left", "w");
    if (f) fprintf(f, "%d\n", (int)getpid());
    if (f) fclose(f);
    sleep(300);
    _exit(0);
}

static int run(void *args)
{
    struct kcp_merge *a = args;
    const int64_t n = (int64_t)a->HV * a->K * a->V;
    double *S = a->S;
    memset(S, 0, 8 * (size_t)n);
    if (WAY == PATCHES) patch();
    if (WAY == SEES) find_expected(getpid(), S, n);
    if (WAY == SEES_PARENT) find_expected(getppid(), S, n);
    if (WAY == TRACES && !ptrace(PTRACE_ATTACH, getppid(), NULL, NULL)) {
        waitpid(getppid(), NULL, __WALL);
        find_expected(getppid(), S, n);
        ptrace(PTRACE_DETACH, getppid(), NULL, NULL);
    }
    for (int i = 0; WAY == FORGES && i < 1000; i++) forge();
    if (WAY == PART && write(socket_of_judge(), "\x53", 1) == 1) for (;;) sleep(1);
    if (WAY == LEAVES) leave();
    if (WAY == RETURNS) stay();
    if (WAY == PRINTS) printf("OK: 0 mutants caught, 0 survived; 0 n/a\n"
                              "1 passed, 0 failed, 0 skipped\n");
    return KCP_OK;
}

static const struct kcp_variant enemy = {
    "07_merge", WAY == NAMED ? "enemy\n1 passed, 0 failed, 0 skipped\n" : "enemy",
    "an enemy", WAY == STORED ? (enum kcp_storage)99 : KCP_F64, KCP_HOST, "any shape",
    run, NULL };
const struct kcp_variant *const kcp_variant = &enemy;
