/* who.c -- which rank of how many: what the launchers leave in the environment.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh, good values and bad ones.
 * Next: boot.c, where the processes meet.
 *
 * mpirun, torchrun, srun, in this order, because the last two may stand around the
 * first. None of them: one process, whose ranks are threads. */
#include "bootstrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A launcher's names for its size, our rank, our rank on this machine; and for what
 * tells one of its jobs from another. */
static const struct launcher { const char *name, *R, *r, *local, *job; } launchers[] = {
    { "mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE" },
    { "torchrun", "WORLD_SIZE", "RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID" },
    { "srun", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_JOB_ID" },
};

static const char *set(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? s : NULL;
}

/* name's value as a whole number of [low,high]; absent: unless_set, if that is in. */
static int number(const char *name, long low, long high, long unless_set, long *out,
                  char *why, size_t n)
{
    const char *s = set(name);
    char *end = "";
    errno = 0;
    *out = s ? strtol(s, &end, 10) : unless_set;
    if (s && (*s < '0' || *s > '9')) errno = EINVAL;     /* no sign, no blank */
    if (*end || errno || *out < low || *out > high) {
        snprintf(why, n, "%s=%.40s: expected a whole number from %ld to %ld", name,
                 s ? s : "", low, high);
        return KCP_BAD;
    }
    return KCP_OK;
}

/* The first host of "a[03-05,7],b" is a03. */
static void first_host(const char *list, char *host, size_t n)
{
    size_t len = strcspn(list, "[,");
    snprintf(host, n, "%.*s", (int)len, list);
    if (list[len] == '[') {
        const size_t digits = strcspn(list + len + 1, "-,]");
        snprintf(host + strlen(host), n - strlen(host), "%.*s", (int)digits,
                 list + len + 1);
    }
}

/* Inside a batch script, but not under srun, SLURM_NTASKS speaks of others. */
static int launched_by(const struct launcher *l)
{
    if (!set(l->r) || !set(l->R))
        return 0;
    return strcmp(l->name, "srun") || !set("SLURM_JOB_ID") ||
           set("SLURM_STEP_NUM_TASKS");
}

static uint64_t hash(uint64_t h, const char *s)
{
    for (; s && *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

/* MASTER_ADDR and MASTER_PORT win; the port otherwise follows from the job, so that two
 * jobs on one machine do not meet. */
static int read_meeting(const struct launcher *l, const struct kcp_who *who,
                        struct meeting *at, char *why, size_t n)
{
    const char *file = set("KCP_RENDEZVOUS"), *nodes = set("SLURM_NODELIST");
    const char *here = set("OMPI_COMM_WORLD_LOCAL_SIZE");
    long port;
    at->key = hash(hash(hash(14695981039346656037u, l->name), set(l->job)),
                   set("SLURM_STEP_ID")) + (uint64_t)who->R;
    if (file && (strncmp(file, "file:", 5) || !file[5] ||
                 strlen(file) >= sizeof at->file)) {
        snprintf(why, n, "KCP_RENDEZVOUS=%.80s: expected file:/a/path", file);
        return KCP_BAD;
    }
    if (file)
        snprintf(at->file, sizeof at->file, "%s", file + 5);
    snprintf(at->host, sizeof at->host, "127.0.0.1");
    if (set("MASTER_ADDR"))
        snprintf(at->host, sizeof at->host, "%s", set("MASTER_ADDR"));
    else if (nodes && !strcmp(l->name, "srun"))
        first_host(nodes, at->host, sizeof at->host);
    else if (!file && here && !strcmp(l->name, "mpirun") && atoi(here) < who->R) {
        snprintf(why, n, "MASTER_ADDR=: the ranks are on several machines, expected "
                 "the name of rank 0's (mpirun -x MASTER_ADDR=...)");
        return KCP_BAD;
    }
    const long from_job = 20000 + (long)(at->key % 10000);
    const int err = number("MASTER_PORT", 1, 65535, from_job, &port, why, n);
    at->port = (int)port;
    return err;
}

int launcher_env_timeout(double *seconds, char *why, size_t n)
{
    long s;
    const int err = number("KCP_TIMEOUT_S", 1, 86400, 60, &s, why, n);
    *seconds = (double)s;
    return err;
}

double monotonic_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int launcher_env_read(struct kcp_who *who, struct meeting *at, char *why, size_t n)
{
    long R, r, local;
    double seconds;
    *who = (struct kcp_who){ 1, 0, 0, NULL };
    memset(at, 0, sizeof *at);
    int err = launcher_env_timeout(&seconds, why, n);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !err; i++) {
        const struct launcher *l = &launchers[i];
        if (!launched_by(l))
            continue;
        const char *size = !strcmp(l->name, "srun") && set("SLURM_STEP_NUM_TASKS")
                         ? "SLURM_STEP_NUM_TASKS" : l->R;
        err = number(size, 1, 4096, 0, &R, why, n);
        if (!err)
            err = number(l->r, 0, R - 1, 0, &r, why, n);
        if (!err)
            err = number(l->local, 0, R - 1, r, &local, why, n);
        if (!err)
            *who = (struct kcp_who){ (int)R, (int)r, (int)local, l->name };
        return err ? err : read_meeting(l, who, at, why, n);
    }
    return err;
}

int kcp_who(struct kcp_who *who, char *why, size_t n)
{
    struct meeting at;
    return launcher_env_read(who, &at, why, n);
}
