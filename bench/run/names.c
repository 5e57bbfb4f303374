/* names.c -- files in --in that nobody reads: a name that no table knows is a mistake.
 *
 * Book: chapter 00.  Checked by: tests/cli/run_cli.sh.  Next: load.c.
 *
 * Known are the fields of every stage, by their names and by the layer's, so that
 * stages may work in one folder, each on what the one before has left there; and what
 * --conv names, reads and writes besides. "cu_seqlen.npy" would be ignored, and all
 * tokens taken for one sequence.
 */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

/* Is this a field's name: "q_raw", or as a file of the layer "q"; "do" is do_? */
static int is_field(const char *field, const char *name, size_t n)
{
    const size_t m = strlen(field);
    if (m < n || memcmp(field, name, n) != 0)
        return 0;
    return m == n || strcmp(field + n, "_raw") == 0 || strcmp(field + n, "_") == 0;
}

static int is_known(const char *name, size_t n)
{
    static const char *const conv[] = { "dw", "x0", "xt", "dxt", "dx0" };
    for (int i = 0; i < kcp_nstages; i++)
        for (int j = 0; j < kcp_stages[i].nfields; j++)
            if (is_field(kcp_stages[i].fields[j].name, name, n))
                return 1;
    for (size_t i = 0; i < sizeof conv / sizeof *conv; i++) {
        const size_t m = strlen(conv[i]);
        if (n == m + 2 && !memcmp(name, conv[i], m) && name[m] == '_' &&
            strchr("qkv", name[m + 1]))
            return 1;
    }
    return 0;
}

/* Is the file one of --conv's, which are apart by commas? */
static int is_asked(const char *list, const char *file)
{
    const size_t n = strlen(file);
    for (const char *s = list; s && *s; ) {
        const size_t m = strcspn(s, ",");
        if (m == n && memcmp(s, file, n) == 0)
            return 1;
        s += m + (s[m] == ',');
    }
    return 0;
}

int names_check(struct run *x)
{
    char unknown[256] = "";
    DIR *d = opendir(x->o.in);
    if (!d)
        return run_error(x, RUN_BAD, "--in", "found %s, expected a directory that can "
                         "be read", strerror(errno));
    for (struct dirent *e = readdir(d); e && !unknown[0]; e = readdir(d)) {
        const size_t n = strlen(e->d_name);
        const char *end = e->d_name + (n > 4 ? n - 4 : 0);
        const int is_array = strcasecmp(end, ".npy") == 0;        /* q.NPY: a mistake */
        const int is_read = strcmp(end, ".npy") == 0 && is_known(e->d_name, n - 4);
        if (is_array && e->d_name[0] != '.' && !is_read &&
            !is_asked(x->o.conv, e->d_name))
            snprintf(unknown, sizeof unknown, "%.255s", e->d_name);
    }
    closedir(d);
    return !unknown[0] ? 0 : run_error(x, RUN_BAD, unknown, "found in --in, expected "
                                       "only names that kcp-run --help lists");
}
