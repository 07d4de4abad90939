/* Between the fork and the user's programs: what execution.py does in a forked interpreter, without the interpreter.

   starter ORDERS REPORT

   Started by posix_spawn. ORDERS is a descriptor of a memory file: how many programs, then for each, every item with a
   NUL behind it: umask (octal), directory, group to enter, "t" for a terminal, limits (number:soft:hard,…), CPUs
   (numbers with commas), nice, the name that messages call it, descriptors 0, 1, 2, a fourth and its number in the program; and
   each behind its count: places of the program, variables, arguments. What is empty is not done. One program is executed in
   this process. Of several each gets a process of its own, whose number goes to the descriptor REPORT (4 bytes); this
   one then ends, so that they become children of the step's keeper. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct order {
    char *umask, *directory, *group, *terminal, *limits, *cpus, *nice, *name;
    int descriptors[4];                       /* the fourth is -1 where there is none */
    int fourth;
    int places, variables;
    char **place, **variable, **argument;     /* variable: one more than there are, argument: ends with NULL */
};

static char *at;

static char *next(void)
{
    char *item = at;
    at += strlen(at) + 1;
    return item;
}

static char **list(int *count)
{
    *count = atoi(next());
    char **items = calloc(*count + 2, sizeof *items);
    for (int i = 0; items && i < *count; i++)
        items[i] = next();
    return items;
}

static int read_order(struct order *order)
{
    int arguments;
    order->umask = next();
    order->directory = next();
    order->group = next();
    order->terminal = next();
    order->limits = next();
    order->cpus = next();
    order->nice = next();
    order->name = next();
    for (int i = 0; i < 4; i++) {
        char *text = next();
        order->descriptors[i] = *text ? atoi(text) : -1;
        if (*text)
            fcntl(order->descriptors[i], F_SETFD, FD_CLOEXEC);
    }
    order->fourth = atoi(next());
    order->place = list(&order->places);
    order->variable = list(&order->variables);
    order->argument = list(&arguments);
    return order->place && order->variable && order->argument;
}

static void say(const char *before, const char *name, const char *after, int number, const char *end)
{
    char stamp[32], *line = NULL;
    struct timeval now;
    struct tm parts;
    gettimeofday(&now, NULL);
    localtime_r(&now.tv_sec, &parts);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &parts);
    int length = asprintf(&line, "[%s.%03d] error: %s%s%s%s%s\n", stamp, (int)(now.tv_usec / 1000), before, name, after,
                          strerror(number), end);
    if (length > 0 && write(2, line, length) < 0)
        return;
}

static int enter_group(const char *group)
{
    char *path = NULL;
    if (asprintf(&path, "%s/cgroup.procs", group) < 0)
        return -1;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, "0", 1) != 1 || close(fd) ? -1 : 0;
}

static void set_limits(char *text)
{
    for (char *one = strtok(text, ","); one; one = strtok(NULL, ",")) {
        char *rest;
        struct rlimit limit;
        int number = strtol(one, &rest, 10);
        limit.rlim_cur = strtoull(rest + 1, &rest, 10);
        limit.rlim_max = strtoull(rest + 1, NULL, 10);
        setrlimit(number, &limit);
    }
}

static void bind_to(char *text)
{
    enum { MOST = 8192 };
    cpu_set_t *set = CPU_ALLOC(MOST);
    size_t size = CPU_ALLOC_SIZE(MOST);
    CPU_ZERO_S(size, set);
    for (char *one = strtok(text, ","); one; one = strtok(NULL, ","))
        CPU_SET_S(atoi(one), size, set);
    sched_setaffinity(0, size, set);
}

static int take_descriptors(const int *wanted, int fourth)
{
    for (int i = 0; i < 3; i++)
        if (dup2(wanted[i], i) < 0)           /* all wanted ones are above 2 */
            return -1;
    if (wanted[3] < 0)
        return 0;
    return wanted[3] == fourth ? fcntl(fourth, F_SETFD, 0) : dup2(wanted[3], fourth) < 0;
}

static int execute(struct order *order)
{
    int reason = ENOENT;
    char task[40];
    setsid();
    if (*order->group && enter_group(order->group))
        return errno & 0xFF;
    if (take_descriptors(order->descriptors, order->fourth))
        return errno & 0xFF;
    if (*order->terminal)
        ioctl(0, TIOCSCTTY, 0);
    if (*order->nice && nice(atoi(order->nice)) == -1)
        errno = 0;
    umask(strtol(order->umask, NULL, 8));
    if (chdir(order->directory)) {
        say("couldn't chdir to `", order->directory, "': ", errno, ": going to /tmp instead");
        if (chdir("/tmp"))
            errno = 0;
    }
    set_limits(order->limits);
    if (*order->cpus)
        bind_to(order->cpus);
    snprintf(task, sizeof task, "SLURM_TASK_PID=%d", (int)getpid());
    order->variable[order->variables] = task;
    for (int i = 0; i < order->places; i++) {
        execve(order->place[i], order->argument, order->variable);
        if (order->places == 1 || (errno != ENOENT && errno != ENOTDIR && errno != EACCES)) {
            reason = errno;
            break;
        }
        if (errno == EACCES)
            reason = EACCES;
    }
    char line[256];
    int script = reason == ENOENT && order->places == 1 ? open(order->place[0], O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = script < 0 ? 0 : read(script, line, sizeof line - 1);
    if (length > 2 && line[0] == '#' && line[1] == '!') {
        line[length] = 0;
        line[strcspn(line, "\n")] = 0;
        say("execve(): bad interpreter(", line + 2, "): ", reason, "");
    } else
        say("execve(): ", order->name, ": ", reason, "");
    return reason & 0xFF;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return argc != 2;                     /* -V: whether it was built well */
    int orders = atoi(argv[1]), report = atoi(argv[2]), count;
    uid_t user = geteuid();                   /* the step daemon's real user may be root */
    gid_t group = getegid();
    struct stat facts;
    if (setresgid(group, group, group) || setresuid(user, user, user) || fstat(orders, &facts))
        return errno & 0xFF;
    at = mmap(NULL, facts.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, orders, 0);
    close(orders);
    if (at == MAP_FAILED)
        return errno & 0xFF;
    count = atoi(next());
    struct order *all = calloc(count, sizeof *all);
    for (int i = 0; i < count; i++)
        if (!all || !read_order(all + i))
            return ENOMEM;
    fcntl(report, F_SETFD, FD_CLOEXEC);
    if (count == 1)
        return execute(all);
    for (int i = 0; i < count; i++) {
        int pid = fork();
        if (pid == 0)
            return execute(all + i);
        if (pid < 0 || write(report, &pid, sizeof pid) != sizeof pid)
            return 1;
    }
    return 0;
}
