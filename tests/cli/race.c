/* race.c -- a data race of two threads, which the thread sanitizer must report.
 *
 * Book: chapter 20.  Checked by: make sanitize-threads.  Next: ../processes.mk. */
#include <pthread.h>
#include <stddef.h>

static int number;

static void *add(void *arg)
{
    number++;
    return NULL;
}

int main(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, add, NULL))
        return 1;
    add(NULL);
    pthread_join(other, NULL);
    return number == 2 ? 0 : 1;
}
