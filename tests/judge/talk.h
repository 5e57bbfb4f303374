/* talk.h -- how the judge and the process of a variant talk: one socket, messages.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: tests/cli/lies.sh.
 * Next: isolation.c, which has it all but what plugin_talk.c does for shared objects.
 */
#ifndef KCP_TALK_H
#define KCP_TALK_H

#include "core/paths.h"
#include "isolation.h"
#include "plugin.h"

enum kind { STARTED = 0x51, RETURNED, DONE, VERDICT, REPORT, RECORD, DEVICE,
            NO_MEMORY, RAN };
struct message {
    enum kind kind;
    uint64_t nonce;
    union {
        struct verdict verdict;
        struct { struct kcp_report report; int status; } check;
        struct { struct kcp_device is; int status; } device;
        struct { char stage[32], name[64], why[160], shapes[160];
                 int storage, where, found; } record;
        struct plugin_ran ran;
    } is;
};
struct request { int index, judged; };

extern int to_judge;                           /* in the process of the variant */
double talk_seconds(void);
int  talk_send(int fd, const void *data, size_t n);
/* Bytes to or from whoever may never read or write them: until then. */
int  talk_move_until(int fd, void *data, size_t n, int writes, double until);
/* "Done", the number that comes for it, and what it was all about. */
void talk_answer(struct message *m, enum kind kind);
/* A process that shares one socket with this one: 0 there, its number here, -1. */
pid_t talk_start(int *fd);
int  talk_kill(pid_t pid);
/* Until the process says what is asked for. The variant may run for limit seconds, and
 * the judge's own part in it for twenty times as long; in a shared object's process the
 * judge has none: bulk, the seconds that its arrays may take. 0 stands for no limit. */
int  talk_listen(pid_t pid, int fd, enum kind kind, double limit, double bulk,
                 struct message *m, char *why, size_t n);
void talk_forget(struct isolated *x);
/* judge_case of a shared object's variant: trials here, their runs there. */
int  plugin_case(struct isolated *x, int index, enum kcp_storage judged,
                 struct verdict *out);

#endif
