/* A gate in front of a callback of a C stream: the callback waits there, without Python, until the gate is opened. */

#include <semaphore.h>
#include <stddef.h>
#include <time.h>

struct stream {
    int (*get_schema)(struct stream *, void *);
    int (*get_next)(struct stream *, void *);
    const char *(*get_last_error)(struct stream *);
    void (*release)(struct stream *);
    void *private_data;
};

static struct stream original;
static sem_t entered, opened;
static int was_late;

/* Waits for seconds that no test should take. Returns 0, or -1 if they have passed. */
static int wait_for(sem_t *semaphore) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 30;
    return sem_timedwait(semaphore, &end);
}

static void wait_at_gate(void) {
    sem_post(&entered);
    if (wait_for(&opened)) was_late = 1;
}

static int get_schema(struct stream *stream, void *out) {
    wait_at_gate();
    return original.get_schema(stream, out);
}

static int get_next(struct stream *stream, void *out) {
    wait_at_gate();
    return original.get_next(stream, out);
}

/* Puts the gate in front of `get_schema`, or of `get_next`. */
void gate_close(struct stream *stream, int before_schema) {
    sem_init(&entered, 0, 0);
    sem_init(&opened, 0, 0);
    was_late = 0;
    original = *stream;
    if (before_schema) stream->get_schema = get_schema;
    else stream->get_next = get_next;
}

/* Waits until the callback is at the gate; returns 0 if it is. */
int gate_wait_until_entered(void) { return wait_for(&entered); }

/* Opens the gate for any number of calls; returns 0 unless the callback did not wait for it. */
int gate_open(void) {
    for (int call = 0; call < 64; call++) sem_post(&opened);
    return was_late;
}
