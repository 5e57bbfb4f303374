/* launcher_env.c -- which rank of how many: what launchers leave in the environment.
 *
 * Book: chapter 20.  Checked by: tests/cli/processes.sh, good values and bad ones.
 * Next: comm/bootstrap.c, where the processes meet.
 *
 * mpirun, torchrun, srun, in this order, because the last two may stand around the
 * first. None of them: one process, whose ranks are threads. Half of a launcher's
 * variables, or those of one that is not known here, are an error: else every process
 * would take itself for the only one. */
#define _POSIX_C_SOURCE 200809L
#include "bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A launcher's names for its size, our rank, our rank on this machine; how many ranks
 * or machines there are, if all are on one; and what tells one of its jobs, its steps
 * and its restarts from another. */
static const struct launcher {
    const char *name, *R, *r, *local, *ranks_here, *machines, *job, *step, *restart;
} launchers[] = {
    { "mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL,
      "PMIX_NAMESPACE", NULL, NULL },
    { "torchrun", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL,
      "TORCHELASTIC_RUN_ID", NULL, "TORCHELASTIC_RESTART_COUNT" },
    { "srun", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL,
      "SLURM_STEP_NUM_NODES", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT" },
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

/* ---- which job this is */
uint64_t launcher_env_hash(uint64_t h, const char *s)
{
    for (; s && *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return (h ^ 0xff) * 1099511628211u;
}

uint64_t launcher_env_machine(void)
{
    char id[80] = "";
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, id, sizeof id - 1);
    close(fd);
    return n > 0 ? launcher_env_hash(14695981039346656037u, id) : 0;
}

/* The words that this process was started with; of the program only its last name. */
static void command_line(char *words, size_t size)
{
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    size_t got = 0;
    while (fd >= 0 && got < size - 1) {
        const ssize_t k = read(fd, words + got, size - 1 - got);
        if (k <= 0)
            break;
        got += (size_t)k;
    }
    words[got] = 0;
    if (fd >= 0)
        close(fd);
    const char *slash = strrchr(words, '/');
    const size_t from = slash ? (size_t)(slash + 1 - words) : 0;
    memmove(words, words + from, got - from + 1);
    for (size_t i = 0; i + 1 < got - from; i++)
        if (!words[i])
            words[i] = ' ';
}

static void append(char *name, size_t size, const char *word)
{
    size_t n = strlen(name);
    for (int i = 0; word && word[i] && i < 24 && n + 2 < size; i++) {
        const char c = word[i];
        const int plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '.';
        name[n++] = plain ? c : '_';
    }
    if (n + 1 < size)
        name[n++] = '-';
    name[n] = 0;
}

/* at->job and at->name from everything by which two jobs differ. Of ranks started by
 * hand no launcher says a job: KCP_JOB does, or else they are of one job who run the
 * same command line. */
static void name_job(const struct launcher *l, const struct kcp_who *who,
                     struct meeting *at)
{
    char words[1024] = "", number_[3][24];
    snprintf(number_[0], sizeof number_[0], "%ld", (long)geteuid());
    snprintf(number_[1], sizeof number_[1], "%d", at->file[0] ? 0 : at->port);
    snprintf(number_[2], sizeof number_[2], "%d", who->R);
    if (!set(l->job) && !set("KCP_JOB"))
        command_line(words, sizeof words);
    const char *const part[] = {
        number_[0], l->name, set(l->job), l->step ? set(l->step) : NULL,
        l->restart ? set(l->restart) : NULL, number_[1], number_[2], set("KCP_JOB"),
        words, at->file };
    at->job = 14695981039346656037u;
    for (size_t i = 1; i < sizeof part / sizeof *part; i++)
        at->job = launcher_env_hash(at->job, part[i]);
    for (size_t i = 0; i < 6; i++)
        append(at->name, sizeof at->name - 20, part[i]);
    snprintf(at->name + strlen(at->name), 20, "%016llx", (unsigned long long)at->job);
}

/* ---- where it meets */
static int is_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "localhost") ||
           !strcmp(host, "::1");
}

static int is_on_one_host(const struct launcher *l, const struct kcp_who *who)
{
    const char *here = l->ranks_here ? set(l->ranks_here) : NULL;
    const char *machines = l->machines ? set(l->machines) : NULL;
    return (here && atoi(here) == who->R) || (machines && atoi(machines) == 1);
}

static int read_file_name(struct meeting *at, char *why, size_t n)
{
    const char *file = set("KCP_RENDEZVOUS");
    if (file && (strncmp(file, "file:", 5) || !file[5] ||
                 strlen(file) >= sizeof at->file)) {
        snprintf(why, n, "KCP_RENDEZVOUS=%.80s: expected file:/a/path", file);
        return KCP_BAD;
    }
    if (file)
        snprintf(at->file, sizeof at->file, "%s", file + 5);
    return KCP_OK;
}

/* MASTER_ADDR, or the first host of the step, or this machine; with a file the address
 * that others know this machine by. */
static int read_host(const struct launcher *l, struct meeting *at, char *why, size_t n)
{
    const char *nodes = set("SLURM_STEP_NODELIST");
    if (!nodes)
        nodes = set("SLURM_NODELIST");
    if (set("MASTER_ADDR"))
        snprintf(at->host, sizeof at->host, "%s", set("MASTER_ADDR"));
    else if (at->file[0] && !at->one_host && !gethostname(at->host, sizeof at->host))
        at->host[sizeof at->host - 1] = 0;
    else if (nodes && !strcmp(l->name, "srun") && !at->file[0])
        first_host(nodes, at->host, sizeof at->host);
    else if (!at->one_host && l->ranks_here && set(l->ranks_here) &&
             !strcmp(l->name, "mpirun")) {
        snprintf(why, n, "MASTER_ADDR=: the ranks are on several machines, expected "
                 "the name of rank 0's (mpirun -x MASTER_ADDR=...)");
        return KCP_BAD;
    } else
        snprintf(at->host, sizeof at->host, "127.0.0.1");
    if (is_loopback(at->host))
        at->one_host = 1;
    return KCP_OK;
}

/* MASTER_PORT wins; else the port follows from the job, so that two jobs on one machine
 * do not meet. torchrun's agent may sit on MASTER_PORT itself. */
static int read_meeting(const struct launcher *l, const struct kcp_who *who,
                        struct meeting *at, char *why, size_t n)
{
    const char *agent = set("TORCHELASTIC_USE_AGENT_STORE");
    long port;
    int err = number("MASTER_PORT", 1, 65535, 1, &port, why, n);
    if (!err)
        err = read_file_name(at, why, n);
    at->one_host = is_on_one_host(l, who);
    if (!err)
        err = read_host(l, at, why, n);
    if (err)
        return err;
    if (set("MASTER_PORT"))
        at->port = (int)port;
    name_job(l, who, at);
    if (!at->port)
        at->port = 20000 + (int)(at->job % 10000);
    at->port_is_taken = set("MASTER_PORT") && agent && !strcmp(agent, "True");
    return KCP_OK;
}

/* ---- who */
static int half_set(const char *a, const char *b, char *why, size_t n)
{
    if (set(a) && !set(b)) {
        snprintf(why, n, "%s=%.40s without %s: expected both, or neither", a, set(a),
                 b);
        return KCP_BAD;
    }
    return KCP_OK;
}

/* No launcher that is known: then none at all, or we say whose variables these are. */
static int alone(char *why, size_t n)
{
    static const struct { const char *R, *r; } foreign[] = {
        { "PMI_SIZE", "PMI_RANK" }, { "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK" },
        { "PMIX_SIZE", "PMIX_RANK" } };
    int err = half_set("RANK", "WORLD_SIZE", why, n);
    if (!err)
        err = half_set("WORLD_SIZE", "RANK", why, n);
    if (!err)
        err = half_set("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", why, n);
    if (!err)
        err = half_set("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", why, n);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign && !err; i++) {
        const char *name = set(foreign[i].R) ? foreign[i].R : foreign[i].r;
        const char *R = set(foreign[i].R);
        if (!set(name) || (R && !strcmp(R, "1")))
            continue;
        snprintf(why, n, "%s=%.40s: a launcher that is not known here, expected Open "
                 "MPI's mpirun, torchrun or srun (or RANK and WORLD_SIZE for each "
                 "process)", name, set(name));
        err = KCP_BAD;
    }
    return err;
}

int launcher_env_options(struct env_options *o, char *why, size_t n)
{
    int err = number("KCP_TIMEOUT_S", 1, 86400, 60, &o->seconds, why, n);
    if (!err)
        err = number("KCP_WATCH", 0, 1, 1, &o->watch, why, n);
    if (!err)
        err = number("KCP_WINDOWS", 0, 1, 0, &o->windows, why, n);
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
    struct env_options o;
    *who = (struct kcp_who){ 1, 0, 0, NULL };
    memset(at, 0, sizeof *at);
    int err = launcher_env_options(&o, why, n);
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
    return err ? err : alone(why, n);
}

int kcp_who(struct kcp_who *who, char *why, size_t n)
{
    struct meeting at;
    return who ? launcher_env_read(who, &at, why, n) : KCP_BAD;
}
