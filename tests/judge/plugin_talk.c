/* plugin_talk.c -- what a shared object's process is given, and what it gives back.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: plugin.c.
 *
 * The judge's half: trials run here and their variant there. Nothing that comes back is
 * believed before it is looked at: words become plain, a record's numbers have bounds.
 */
#include "talk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Words from there: they end, and no byte of them makes a line of its own. */
static void plain_words(char *words, size_t n)
{
    words[n - 1] = 0;
    for (char *at = words; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
}

static struct isolated *plugin;                /* whose variant trials run; or NULL */

int plugin_runs_trials(void) { return plugin != NULL; }

static int lose(const char *how, char *why, size_t n)
{
    if (how) {
        talk_kill(plugin->pid);
        snprintf(why, n, "%s", how);
    }
    talk_forget(plugin);
    return KCP_COMM;
}

/* Seconds that arrays may take there or back, at 50 MB a second. */
static double seconds_of(const struct plugin_part *part, int count)
{
    double bytes = 0;
    for (int i = 0; i < count; i++) bytes += (double)part[i].n;
    return bytes / 50e6;
}

/* Each part of a trial, there or back; its process may have to start first. */
static int move_parts(const struct plugin_part *part, int count, int writes)
{
    const double most = isolation_limit ? fmax(isolation_limit / 3.0, 10) : 86400;
    const double until = talk_seconds() + most + seconds_of(part, count);
    for (int i = 0; i < count; i++)
        if (talk_move_until(plugin->fd, part[i].p, part[i].n, writes, until)) return 1;
    return 0;
}

static void send_start(const struct isolated *x)
{
    struct plugin_start *s = &plugin_start;
    snprintf(s->object, sizeof s->object, "%s", x->object);
    s->fence = fence_bytes;
    s->bare = bare_workspaces;
    s->in_turn = ranks_in_turn;
    const struct plugin_part all = { s, sizeof *s };
    move_parts(&all, 1, 1);
}

int plugin_exchange(const struct plugin_part *to, int nto,
                    const struct plugin_part *from, int nfrom, struct plugin_ran *ran,
                    char *why, size_t n)
{
    struct isolated *x = plugin;
    const double all = isolation_limit * 5 / 3.0, begin = talk_seconds();
    double limit = isolation_limit;
    struct message m;
    int status = KCP_OK;
    if (isolation_limit && x->lost >= all) {
        snprintf(why, n, "not run: %.0f s went by without a verdict", x->lost);
        return KCP_COMM;
    }
    if (limit > all - x->lost) limit = all - x->lost;
    const int fresh = !x->pid;
    if (fresh) x->pid = talk_start(&x->fd);
    if (x->pid < 0) {
        x->pid = 0;
        return KCP_NO_MEMORY;
    }
    if (!x->pid) plugin_execs(to_judge);
    if (fresh) send_start(x);
    /* Who takes nothing may have ended: talk_listen says how. */
    move_parts(to, nto, 1);
    if (talk_listen(x->pid, x->fd, RAN, limit, seconds_of(to, nto), &m, why, n))
        status = lose(NULL, why, n);
    else if (!m.is.ran.status && move_parts(from, nfrom, 0))
        status = lose("it gives no arrays back", why, n);
    if (status) x->lost += talk_seconds() - begin;
    else *ran = m.is.ran;
    if (!status) plain_words(ran->why, sizeof ran->why);
    return status;
}

int plugin_case(struct isolated *x, int index, enum kcp_storage judged,
                struct verdict *out)
{
    plugin = x;
    const int status = judge_case(x->stage, x->variant, &x->list[index], judged, out);
    plugin = NULL;
    return status;
}

int isolated_object_check(struct isolated *x,
                          int (*run)(struct kcp_report *, const struct kcp_variant *),
                          struct kcp_report *own)
{
    char why[160];
    if (isolation_off || ranks_mine() >= 0) return run(own, x->variant);
    plugin = x;
    const int status = run(own, x->variant);
    plugin = NULL;
    if (isolated_end(x, why, sizeof why))
        report_fail(own, "%s: %s", x->variant->name, why);
    return status;
}

static void put_record(struct message *m, const struct kcp_variant *v)
{
    snprintf(m->is.record.stage, sizeof m->is.record.stage, "%s", v->stage);
    snprintf(m->is.record.name, sizeof m->is.record.name, "%s", v->name);
    snprintf(m->is.record.why, sizeof m->is.record.why, "%s", v->why);
    snprintf(m->is.record.shapes, sizeof m->is.record.shapes, "%s", v->shapes);
    m->is.record.storage = v->storage;
    m->is.record.where = v->where;
    m->is.record.found = 1;
}

int isolated_probe(const char *path, struct kcp_variant *record, char *why, size_t n)
{
    static struct message m;                    /* the record's words stay here */
    int fd;
    const pid_t pid = talk_start(&fd);
    if (pid < 0) return 1;
    if (!pid) {
        m = (struct message){ .kind = RECORD };
        isolation_started();
        const struct kcp_variant *v =
            variant_load(path, m.is.record.why, sizeof m.is.record.why);
        if (v) put_record(&m, v);
        talk_answer(&m, RECORD);
        _exit(0);
    }
    const int lost = talk_listen(pid, fd, RECORD, isolation_limit, 0, &m, why, n);
    if (!lost) talk_kill(pid);
    close(fd);
    if (!lost && !m.is.record.found) snprintf(why, n, "%s", m.is.record.why);
    if (lost || !m.is.record.found) return 1;
    plain_words(m.is.record.stage, sizeof m.is.record.stage);
    plain_words(m.is.record.name, sizeof m.is.record.name);
    plain_words(m.is.record.why, sizeof m.is.record.why);
    plain_words(m.is.record.shapes, sizeof m.is.record.shapes);
    const int storage = m.is.record.storage, where = m.is.record.where;
    if (storage < KCP_F64 || storage > KCP_BF16 ||
        (where != KCP_HOST && where != KCP_DEVICE)) {
        snprintf(why, n, "its record has storage %d and place %d", storage, where);
        return 1;
    }
    *record = (struct kcp_variant){ m.is.record.stage, m.is.record.name,
        m.is.record.why, (enum kcp_storage)m.is.record.storage,
        (enum kcp_where)m.is.record.where, m.is.record.shapes, NULL, NULL };
    return 0;
}
