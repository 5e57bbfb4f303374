/* said.c -- did all that a program printed arrive?
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli/cli.sh, tests/cli/run_cli.sh.
 * Next: main.c.
 */
#include "said.h"
#include "kcp.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void say(const char *line) { fprintf(stderr, "kcp: %s\n", line); }

void say_notices(void) { kcp_notices(say); }

int all_said(const char *program, int status)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout)) return status;
    fprintf(stderr, "%s: stdout: found '%s', expected room for what is said\n", program,
            errno ? strerror(errno) : "an error");
    return status ? status : 2;
}
