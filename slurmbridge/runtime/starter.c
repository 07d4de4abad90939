/* Between the fork and the user's program: what execution.py does in a forked interpreter, without the interpreter.

   starter UMASK DIRECTORY CGROUP TERMINAL LIMITS CPUS NICE NAME N M PATH1 … PATHN VARIABLE1 … VARIABLEM ARGV…

   Started by posix_spawn in a session of its own, with its descriptors 0-2 in place. The program's environment is among
   the arguments: where the step daemon's real user is root, ld.so would take variables away. LIMITS: number:soft:hard,…;
   CPUS: numbers with commas; NAME: as messages call the program; empty where nothing is to be done. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

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

int main(int argc, char **argv)
{
    if (argc < 12)
        return argc != 2;                     /* -V: whether it was built well */
    const char *directory = argv[2], *group = argv[3], *name = argv[8];
    int count = atoi(argv[9]), variables = atoi(argv[10]), reason = ENOENT;
    char **paths = argv + 11, **arguments = paths + count + variables, task[40];
    char **environment = malloc((variables + 2) * sizeof *environment);
    uid_t user = geteuid();
    gid_t own_group = getegid();
    if (!environment || setresgid(own_group, own_group, own_group) || setresuid(user, user, user))
        return errno & 0xFF;
    if (*group && enter_group(group))
        return errno & 0xFF;
    if (*argv[4])
        ioctl(0, TIOCSCTTY, 0);
    if (*argv[7] && nice(atoi(argv[7])) == -1)
        errno = 0;
    umask(strtol(argv[1], NULL, 8));
    if (chdir(directory)) {
        say("couldn't chdir to `", directory, "': ", errno, ": going to /tmp instead");
        if (chdir("/tmp"))
            errno = 0;
    }
    set_limits(argv[5]);
    if (*argv[6])
        bind_to(argv[6]);
    snprintf(task, sizeof task, "SLURM_TASK_PID=%d", (int)getpid());
    memcpy(environment, paths + count, variables * sizeof *environment);
    environment[variables] = task;
    environment[variables + 1] = NULL;
    for (int i = 0; i < count; i++) {
        execve(paths[i], arguments, environment);
        if (count == 1 || (errno != ENOENT && errno != ENOTDIR && errno != EACCES)) {
            reason = errno;
            break;
        }
        if (errno == EACCES)
            reason = EACCES;
    }
    say("execve(): ", name, ": ", reason, "");
    return reason & 0xFF;
}
