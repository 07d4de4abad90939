/* What a user's shell starts for squeue, sbatch, srun and the others, where a C compiler was at hand.
 *
 * The same program as launcher.py (which is the reference for what it says and does), for those who start it
 * thousands of times: one call, the frames of docs/protocol.md, one exit code. Needs nothing but libc, and links
 * statically. It speaks unix:// and tcp://; for https:// it becomes the Python client.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#ifndef SLURM_VERSION
#define SLURM_VERSION "25.11.7"
#endif
#ifndef PYTHON                                  /* the words that start it */
#define PYTHON "/usr/bin/python3"
#endif
#ifndef ROOT                                    /* the folder that holds the package slurmbridge */
#define ROOT ""
#endif

enum { CHUNK = 64 << 10, READ_SIZE = 256 << 10, MAX_PAYLOAD = 128 << 20, CONNECT_TIMEOUT_S = 10, RESTART_WAIT_MS = 3000 };

static const char AWAY[] = "Unable to contact slurm controller (connect failure)";
static const char TIMED_OUT[] = "Socket timed out on send/recv operation";
static const char LOST[] = "Zero Bytes were transmitted or received";

extern char **environ;
static const char *command;                     /* the name we were called by */

/* ---- memory ------------------------------------------------------------------------------------------------- */

struct bytes { char *data; size_t length, room; };

static void die(const char *text)
{
	fprintf(stderr, "%s: error: %s\n", command ? command : "slurmbridge", text);
	_exit(1);
}

static void reserve(struct bytes *b, size_t more)
{
	if (b->room - b->length >= more)
		return;
	if (more > SIZE_MAX / 4 || b->length > SIZE_MAX / 4)
		die("out of memory");
	b->room = (b->length + more) * 2;
	b->data = realloc(b->data, b->room);
	if (!b->data)
		die("out of memory");
}

static void add(struct bytes *b, const void *data, size_t length)
{
	reserve(b, length + 1);
	if (length)
		memcpy(b->data + b->length, data, length);
	b->length += length;
	b->data[b->length] = '\0';
}

static void add_text(struct bytes *b, const char *text) { add(b, text, strlen(text)); }

__attribute__((format(printf, 2, 3))) static void add_format(struct bytes *b, const char *format, ...)
{
	char line[512];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	add(b, line, length < (int)sizeof line ? (size_t)length : sizeof line - 1);
}

static void drop(struct bytes *b, size_t length)
{
	memmove(b->data, b->data + length, b->length - length);
	b->length -= length;
}

static void put_number(char *at, uint32_t n)
{
	for (int i = 0; i < 4; i++)
		at[i] = (char)(n >> (24 - 8 * i));
}

static uint64_t number_at(const char *at, int size)
{
	uint64_t n = 0;
	for (int i = 0; i < size; i++)
		n = n << 8 | (unsigned char)at[i];
	return n;
}

/* A frame is begun with begin_frame and gets its length from end_frame. */
static size_t begin_frame(struct bytes *b, char kind)
{
	char head[5] = {kind};
	add(b, head, 5);
	return b->length;
}

static void end_frame(struct bytes *b, size_t begun) { put_number(b->data + begun - 4, (uint32_t)(b->length - begun)); }

static void add_number(struct bytes *b, uint32_t n)
{
	char raw[4];
	put_number(raw, n);
	add(b, raw, 4);
}

/* ---- JSON --------------------------------------------------------------------------------------------------- */

/* The length of the valid UTF-8 character at s, 0 where there is none. */
static int utf8_length(const unsigned char *s)
{
	int n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : *s >= 0xe0 && *s < 0xf0 ? 3 : *s >= 0xf0 && *s < 0xf5 ? 4 : 0;
	for (int i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)      /* also stops at the terminating zero */
			return 0;
	if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) || (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

static void add_json(struct bytes *b, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	add(b, "\"", 1);
	while (*s) {
		const unsigned char *plain = s;
		while (*s >= 0x20 && *s < 0x80 && *s != '"' && *s != '\\')
			s++;
		add(b, plain, (size_t)(s - plain));
		if (!*s)
			break;
		int n = utf8_length(s);
		if (n == 0)
			add_format(b, "\\udc%02x", *s);
		else if (n == 1)
			add_format(b, *s < 0x20 ? "\\u%04x" : "\\%c", *s);
		else
			add(b, s, (size_t)n);
		s += n ? n : 1;
	}
	add(b, "\"", 1);
}

static void add_json_list(struct bytes *b, const char *name, char **list)
{
	add_format(b, "\"%s\":[", name);
	for (char **p = list; *p; p++) {
		if (p > list)
			add(b, ",", 1);
		add_json(b, *p);
	}
	add(b, "],", 2);
}

static void add_utf8(struct bytes *b, unsigned c)
{
	int more = c < 0x80 || (c >= 0xdc80 && c <= 0xdcff) ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	static const unsigned first[] = {0, 0xc0, 0xe0, 0xf0};
	char s[4] = {(char)(more ? first[more] | c >> 6 * more : c & 0xff)};    /* U+DC80 to U+DCFF stand for bytes */
	for (int i = 1; i <= more; i++)
		s[i] = (char)(0x80 | (c >> 6 * (more - i) & 63));
	add(b, s, (size_t)more + 1);
}

static int hex4(const char *s)
{
	char digits[5] = "";
	for (int i = 0; i < 4 && isxdigit((unsigned char)s[i]); i++)
		digits[i] = s[i];
	return strlen(digits) == 4 ? (int)strtol(digits, NULL, 16) : -1;
}

/* The string that begins behind its quote at *s, which is then set behind the closing one. */
static char *json_string(const char **s)
{
	static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
	struct bytes b = {0};
	add(&b, "", 0);
	for (; **s && **s != '"'; ++*s) {
		if (**s != '\\' || !(*s)[1]) {
			add(&b, *s, 1);
			continue;
		}
		const char *known = strchr(names, *++*s);
		int c = **s == 'u' ? hex4(*s + 1) : -1, low;
		if (c >= 0) {
			*s += 4;
			if (c >= 0xd800 && c < 0xdc00 && (*s)[1] == '\\' && (*s)[2] == 'u' && (low = hex4(*s + 3)) >= 0xdc00 && low < 0xe000) {
				c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
				*s += 6;
			}
			add_utf8(&b, (unsigned)c);
		} else {
			add(&b, known ? values + (known - names) : *s, 1);
		}
	}
	*s += **s == '"';
	return b.data;
}

/* What the member of that name of a JSON object holds, one string or a list of them, NULL-terminated. NULL: no such. */
static char **json_strings(const char *s, const char *name)
{
	char **list = NULL;
	size_t count = 0;
	int depth = 0;
	bool ours = false;
	while (*s) {
		char c = *s++;
		depth += (c == '{' || c == '[') - (c == '}' || c == ']');
		if (c != '"' && !(c == '[' && ours))
			continue;
		char *text = c == '"' ? json_string(&s) : NULL;
		if (text && depth == 1 && s[strspn(s, " \t\r\n")] == ':') {
			ours = strcmp(text, name) == 0;
			free(text);
		} else if (ours) {
			list = realloc(list, (count + 2) * sizeof *list);
			if (!list)
				die("out of memory");
			list[count] = text;
			list[count += text != NULL] = NULL;
		} else {
			free(text);
		}
	}
	return list;
}

/* ---- where to go ---------------------------------------------------------------------------------------------- */

static const char *value_of(const char *name)
{
	const char *value = getenv(name);
	return value ? value : "";
}

static bool one_of(const char *word, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(word, *list) == 0)
			return true;
	return false;
}

/* srun's long options after which the next word is not their value */
static const char SRUN_LONG_FLAGS[] =
	" consolidate-segments contiguous debugger-test disable-status exact help hold interactive label multi-prog no-allocate"
	" overcommit oversubscribe preserve-env quiet quit-on-interrupt reboot spread-job spread-segments stepmgr test-only"
	" unbuffered usage use-min-nodes verbose version wait-for-children whole bcast compress exclusive external-launcher"
	" immediate kill-on-bad-exit nice no-kill oom-kill-step overlap propagate pty resv-ports send-libs x11";

/* The value of srun's --jobid, which may stand anywhere before the program; "" without one. */
static const char *srun_job(char **word)
{
	const char *found = "";
	for (; *word && **word == '-' && strcmp(*word, "--") && strcmp(*word, "-"); word++) {
		const char *w = *word;
		if (w[1] == '-') {
			size_t length = strcspn(w + 2, "=");
			const char *value = w[2 + length] ? w + 3 + length : NULL;
			bool is_job = length >= 4 && strncmp("jobid", w + 2, length) == 0;
			struct bytes flag = {0};
			add(&flag, " ", 1);
			add(&flag, w + 2, length);
			if (!value && (is_job || !strstr(SRUN_LONG_FLAGS, flag.data)))
				value = word[1] ? *++word : "";
			if (is_job)
				found = value;
			free(flag.data);
			continue;
		}
		for (w++; *w && strchr("XHhlZOsEQuvV", *w); w++)
			;
		if (*w && !strchr("IKk", *w) && !w[1] && word[1])
			word++;
	}
	return found;
}

/* SLURMBRIDGE_URL, else the socket of the user's default state directory. */
static const char *default_address(void)
{
	static struct bytes b;
	const char *state = value_of("XDG_STATE_HOME"), *home = value_of("HOME");
	if (*value_of("SLURMBRIDGE_URL"))
		return value_of("SLURMBRIDGE_URL");
	if (*state != '/' && !*home) {
		FILE *users = fopen("/etc/passwd", "re");
		struct passwd *user;
		home = "/";
		while (users && (user = fgetpwent(users)))
			if (user->pw_uid == geteuid()) {
				home = user->pw_dir;
				break;
			}
	}
	add_text(&b, "unix://");
	add_text(&b, *state == '/' ? state : home);
	add_text(&b, *state == '/' ? "/slurmbridge/slurmbridge.sock" : "/.local/state/slurmbridge/slurmbridge.sock");
	return b.data;
}

static const char *destination(char **argv, const char **credential)
{
	static const char *const in_job[] = {"srun", "sattach", "sbcast", "sstat", NULL};
	const char *daemon = value_of("SLURMBRIDGE_STEPD");
	*credential = "";
	if (*daemon && one_of(command, in_job)) {
		const char *other = strcmp(command, "srun") == 0 ? srun_job(argv) : "";
		struct bytes task = {0};
		add_text(&task, value_of("SLURM_ARRAY_JOB_ID"));
		add_text(&task, "_");
		add_text(&task, value_of("SLURM_ARRAY_TASK_ID"));
		if (!*other || strcmp(other, value_of("SLURM_JOB_ID")) == 0 || strcmp(other, task.data) == 0) {
			*credential = value_of("SLURMBRIDGE_CREDENTIAL");
			return daemon;
		}
	}
	return default_address();
}

static long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000L + t.tv_nsec / 1000000;
}

/* A connected socket, or -1 with errno. A socket that nobody serves is tried for a while: its controller died and is
 * usually being restarted. */
static int open_connection(const char *address)
{
	union { struct sockaddr any; struct sockaddr_un un; struct sockaddr_in in; struct sockaddr_in6 in6; } to = {0};
	socklen_t length;
	struct timeval limit = {CONNECT_TIMEOUT_S, 0};
	if (strncmp(address, "unix://", 7) == 0) {
		to.un.sun_family = AF_UNIX;
		if (strlen(address + 7) >= sizeof to.un.sun_path)
			return errno = ENAMETOOLONG, -1;
		strcpy(to.un.sun_path, address + 7);
		length = sizeof to.un;
	} else {
		char host[64];
		const char *port = strrchr(address + 6, ':'), *begin = address + 6;
		size_t size = port ? (size_t)(port - begin) : sizeof host;
		if (size > 1 && *begin == '[' && begin[size - 1] == ']')
			begin++, size -= 2;
		if (size >= sizeof host)
			return errno = EINVAL, -1;
		memcpy(host, begin, size);
		host[size] = '\0';
		if (inet_pton(AF_INET, host, &to.in.sin_addr) == 1)
			to.in.sin_family = AF_INET, to.in.sin_port = htons((uint16_t)atoi(port + 1)), length = sizeof to.in;
		else if (inet_pton(AF_INET6, host, &to.in6.sin6_addr) == 1)
			to.in6.sin6_family = AF_INET6, to.in6.sin6_port = htons((uint16_t)atoi(port + 1)), length = sizeof to.in6;
		else
			return errno = EHOSTUNREACH, -1;
	}
	for (long deadline = 0;;) {
		int fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			return -1;
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
		if (connect(fd, &to.any, length) == 0) {
			fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
			return fd;
		}
		int reason = errno;
		close(fd);
		bool was_there = to.any.sa_family == AF_UNIX && (reason == ECONNREFUSED || (reason == ENOENT && deadline));
		if (!was_there || (deadline && now_ms() > deadline))
			return errno = reason, -1;
		if (!deadline)
			deadline = now_ms() + RESTART_WAIT_MS;
		nanosleep(&(struct timespec){0, 50000000}, NULL);
	}
}

/* ---- what is said when nobody answers --------------------------------------------------------------------------- */

static int say(int code, const char *before, const char *reason)
{
	fprintf(stderr, "%s%s\n", before, reason);
	return code;
}

static int unreachable(char **argv, const char *reason)
{
	static const struct { const char *name, *before; int code; } texts[] = {
		{"squeue", "slurm_load_jobs error: ", 1}, {"sbatch", "sbatch: error: Batch job submission failed: ", 1},
		{"srun", "srun: error: Unable to allocate resources: ", 1}, {"salloc", "salloc: error: Job submit/allocate failed: ", 1},
		{"sinfo", "slurm_load_partitions: ", 1}, {"sprio", "Couldn't get priority factors from controller: ", 255},
		{"sshare", "Couldn't get shares from controller: ", 255}, {"sdiag", "slurm_get_statistics: ", 255},
		{"sattach", "sattach: error: Could not get job step info: ", 1}, {"strigger", "slurm_get_triggers: ", 1}, {0}};
	static const struct { const char *entity, *before; } scontrol[] = {
		{"job", "slurm_load_jobs error: "}, {"node", "slurm_load_node error: "}, {"partition", "slurm_load_partitions error: "},
		{"config", "slurm_load_ctl_conf error:"}, {"step", "scontrol: error: scontrol_print_step: slurm_get_job_steps((null)) failed: "},
		{"reconfigure", "slurm_reconfigure error:"}, {0}};
	static const char *const database[] = {"sacct", "sacctmgr", "sreport", NULL}, stars[] = "*****************************************";
	struct bytes other = {0};
	const char *first = "", *second = "";
	int plain = 0;
	for (char **word = argv; *word; word++)
		if (**word != '-') {
			if (plain++ == 0)
				first = *word;
			else if (plain == 2)
				second = *word;
		}
	if (one_of(command, database)) {
		fprintf(stderr, "%s: error: Problem talking to the database: ", command);
		return say(1, "", reason == AWAY ? "Connection refused" : reason);
	}
	if (strcmp(command, "scancel") == 0) {
		for (char **word = argv; *word; word++)
			if (**word != '-')
				fprintf(stderr, "scancel: error: Kill job error on job id %s: %s\n", *word, reason);
		return plain ? 8 : say(1, "slurm_load_jobs error: ", reason);
	}
	if (strcmp(command, "squeue") == 0)
		for (char **word = argv; *word; word++)
			if (strcmp(*word, "-s") == 0 || strcmp(*word, "--steps") == 0 || strncmp(*word, "--steps=", 8) == 0)
				return say(1, "slurm_get_job_steps error: ", reason);
	if (strcmp(command, "srun") == 0) {
		const char *job = *srun_job(argv) ? srun_job(argv) : value_of("SLURM_JOB_ID");
		if (*job) {
			fprintf(stderr, "srun: error: Unable to confirm allocation for job %s: %s\n", job, reason);
			return say(1, "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job ", job);
		}
	}
	if (strcmp(command, "scontrol") == 0) {
		if (strcmp(first, "ping") == 0) {
			char host[HOST_NAME_MAX + 1] = "";
			gethostname(host, sizeof host - 1);
			host[strcspn(host, ".")] = '\0';
			printf("Slurmctld(primary) at %s is DOWN\n%s\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n%s\n", host, stars, stars);
			fflush(stdout);
			return 1;
		}
		const char *entity = strcmp(first, "show") == 0 ? second : first;
		size_t length = strlen(entity);
		while (length && (entity[length - 1] | 32) == 's')
			length--;
		for (int i = 0; scontrol[i].entity; i++)
			if (strlen(scontrol[i].entity) == length && strncasecmp(entity, scontrol[i].entity, length) == 0)
				return say(1, scontrol[i].before, reason);
	}
	for (int i = 0; texts[i].name; i++)
		if (strcmp(texts[i].name, command) == 0)
			return say(texts[i].code, texts[i].before, reason);
	add_text(&other, command);
	add_text(&other, ": error: ");
	return say(1, other.data, reason);
}

/* ---- the caller's files ------------------------------------------------------------------------------------------- */

static int write_all(int fd, const char *data, size_t length)
{
	while (length) {
		ssize_t written = write(fd, data, length);
		if (written < 0 && errno == EAGAIN) {
			struct pollfd wait = {fd, POLLOUT, 0};
			poll(&wait, 1, -1);
		} else if (written < 0 && errno != EINTR) {
			return errno;
		} else if (written > 0) {
			data += written;
			length -= (size_t)written;
		}
	}
	return 0;
}

/* Appends a file's content; a file of more than limit bytes is EFBIG. */
static int read_file(struct bytes *to, const char *path, uint64_t limit)
{
	size_t before = to->length;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), reason = 0;
	if (fd < 0)
		return errno;
	while (!reason) {
		reserve(to, READ_SIZE);
		ssize_t got = read(fd, to->data + to->length, READ_SIZE);
		if (got == 0)
			break;
		if (got > 0)
			to->length += (size_t)got;
		else if (errno != EINTR)
			reason = errno;
		if (to->length - before > limit)
			reason = EFBIG;
	}
	close(fd);
	if (reason)
		to->length = before;
	return reason;
}

/* Writes a regular file whole or not at all (temporary file, rename); anything else directly. */
static int write_file(const char *path, mode_t mode, bool exclusive, const char *data, size_t length)
{
	struct stat is;
	char target[PATH_MAX], *real = NULL, *temporary = NULL;
	bool special = lstat(path, &is) == 0 && !(stat(path, &is) == 0 && S_ISREG(is.st_mode));
	int flags = exclusive || !special ? O_EXCL | O_CREAT : 0;
	if (!exclusive && !special) {
		real = realpath(path, target);
		if (asprintf(&temporary, "%s.%d~", real ? real : path, (int)getpid()) < 0)
			die("out of memory");
	}
	int fd = open(temporary ? temporary : path, O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, mode), reason = fd < 0 ? errno : 0;
	if (fd >= 0) {
		reason = write_all(fd, data, length);
		if (close(fd) < 0 && !reason)
			reason = errno;
		if (!reason && temporary && rename(temporary, real ? real : path) < 0)
			reason = errno;
		if (reason && flags)
			unlink(temporary ? temporary : path);
	}
	free(temporary);
	return reason;
}

/* ---- terminal, signals, the command on the caller's terminal --------------------------------------------------------- */

static struct termios saved_terminal;
static bool is_raw;
static int signal_pipe[2] = {-1, -1};
static const int FORWARDED[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, 0};

static void restore_terminal(void)
{
	if (is_raw)
		tcsetattr(0, TCSADRAIN, &saved_terminal);
	is_raw = false;
}

static void make_raw(void)
{
	if (is_raw || tcgetattr(0, &saved_terminal) < 0)
		return;
	struct termios raw = saved_terminal;
	cfmakeraw(&raw);
	is_raw = tcsetattr(0, TCSADRAIN, &raw) == 0;
}

static void note_signal(int number)
{
	int before = errno;
	char byte = (char)number;
	if (write(signal_pipe[1], &byte, 1) < 0)
		errno = before;                 /* a full pipe: enough is told already */
	errno = before;
}

static void watch(int number)
{
	if (signal_pipe[0] < 0 && pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		die(strerror(errno));
	struct sigaction act = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
	sigaction(number, &act, NULL);
}

/* N: what is said when a signal ends us. */
static const int LETHAL[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, 0};
static char last_words[4096];
static volatile size_t last_words_length;
static volatile int last_code;

static void leave(int number)
{
	(void)number;
	if (write(2, last_words, last_words_length) < 0)
		_exit(last_code);
	_exit(last_code);
}

static void set_last_words(const char *text, size_t length)
{
	if (length) {
		last_code = (unsigned char)*text;
		last_words_length = length - 1 < sizeof(last_words) ? length - 1 : sizeof(last_words);
		memcpy(last_words, text + 1, last_words_length);
	}
	for (const int *number = LETHAL; *number; number++) {
		struct sigaction old, act = {.sa_handler = length ? leave : SIG_DFL};
		if (sigaction(*number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(*number, &act, NULL);
	}
}

static bool terminal_size(struct winsize *size) { return ioctl(1, TIOCGWINSZ, size) == 0 || ioctl(0, TIOCGWINSZ, size) == 0; }

static pid_t run_child(char **argv, char **env)
{
	bool foreground = isatty(0);
	signal(SIGTTOU, foreground ? SIG_IGN : SIG_DFL);
	pid_t pid = fork();
	if (pid != 0) {
		setpgid(pid, pid);              /* whichever of the two is first: K signals the group */
		return pid;
	}
	setpgid(0, 0);
	if (foreground)
		tcsetpgrp(0, getpid());
	for (const int *number = FORWARDED; *number; number++)
		signal(*number, SIG_DFL);
	signal(SIGTTOU, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGWINCH, SIG_DFL);
	environ = env;
	execvp(argv[0], argv);
	if (errno == ENOENT || errno == ENOTDIR || errno == EACCES)
		fprintf(stderr, "%s: error: _fork_command: Unable to find command \"%s\"\n", command, argv[0]);
	else
		fprintf(stderr, "%s: error: _fork_command: Unable to exec command \"%s\": %s\n", command, argv[0], strerror(errno));
	const char *code = getenv("SLURM_EXIT_ERROR");
	_exit(code && atoi(code) > 0 ? atoi(code) : 1);
}

/* K: the command's process group, and what it has put in the terminal's foreground beside itself. */
static void signal_child(pid_t child, int number)
{
	pid_t group = isatty(0) ? tcgetpgrp(0) : -1;
	if (group > 0 && group != child && group != getpgrp())
		killpg(group, SIGHUP);
	if (number)
		killpg(child, number);
}

/* ---- one connection ------------------------------------------------------------------------------------------------ */

struct exchange {
	int fd;
	struct bytes in, out;
	bool input_open, ended;
	int code, output_error;
	pid_t child;
	bool child_code;                        /* the connection is lost: the child's code is ours */
	char *go;                               /* the JSON of a G frame */
};

static void add_request(struct bytes *b, char **argv, char **env, const char *credential)
{
	static const struct { const char *name; int limit; } limits[] = {
		{"CPU", RLIMIT_CPU}, {"FSIZE", RLIMIT_FSIZE}, {"DATA", RLIMIT_DATA}, {"STACK", RLIMIT_STACK}, {"CORE", RLIMIT_CORE},
		{"RSS", RLIMIT_RSS}, {"NPROC", RLIMIT_NPROC}, {"NOFILE", RLIMIT_NOFILE}, {"MEMLOCK", RLIMIT_MEMLOCK}, {"AS", RLIMIT_AS}};
	char host[HOST_NAME_MAX + 1] = "", directory[PATH_MAX];
	struct winsize size;
	mode_t mask = umask(077);
	umask(mask);
	gethostname(host, sizeof host - 1);
	host[strcspn(host, ".")] = '\0';
	if (!getcwd(directory, sizeof directory))
		strcpy(directory, ".");		/* it was removed */
	size_t frame = begin_frame(b, 'R');
	add_text(b, "{\"v\":1,\"command\":");
	add_json(b, command);
	add_text(b, ",");
	add_json_list(b, "argv", argv);
	add_json_list(b, "env", env);
	add_text(b, "\"cwd\":");
	add_json(b, directory);
	add_format(b, ",\"umask\":%u,\"host\":", (unsigned)mask);
	add_json(b, host);
	add_format(b, ",\"pid\":%d,\"sid\":%d,\"rlimits\":{", (int)getpid(), (int)getsid(0));
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
		getrlimit(limits[i].limit, &r);
		add_format(b, "%s\"%s\":[%lld,%lld]", i ? "," : "", limits[i].name, r.rlim_cur == RLIM_INFINITY ? -1LL : (long long)r.rlim_cur,
			   r.rlim_max == RLIM_INFINITY ? -1LL : (long long)r.rlim_max);
	}
	if (isatty(1) && terminal_size(&size))
		add_format(b, "},\"tty_columns\":%d", size.ws_col);
	else
		add_text(b, "},\"tty_columns\":null");
	add_format(b, ",\"stdin_tty\":%s,\"credential\":", isatty(0) ? "true" : "false");
	add_json(b, credential);
	add_text(b, "}");
	end_frame(b, frame);
}

static void send_size(struct exchange *x)
{
	struct winsize size;
	if (!terminal_size(&size))
		return;
	char raw[4] = {(char)(size.ws_row >> 8), (char)size.ws_row, (char)(size.ws_col >> 8), (char)size.ws_col};
	size_t frame = begin_frame(&x->out, 'Z');
	add(&x->out, raw, 4);
	end_frame(&x->out, frame);
}

/* Answers F: the file's content goes straight into the frame. */
static void answer_read(struct exchange *x, const char *payload, const char *path)
{
	size_t frame = begin_frame(&x->out, 'D');
	add_number(&x->out, 0);
	int reason = read_file(&x->out, path, number_at(payload, 8));
	put_number(x->out.data + frame, (uint32_t)reason);
	end_frame(&x->out, frame);
}

static void answer(struct exchange *x, uint32_t status)
{
	size_t frame = begin_frame(&x->out, 'D');
	add_number(&x->out, status);
	end_frame(&x->out, frame);
}

/* Obeys one frame. The payload is followed by a zero byte. False: not a frame of this protocol. */
static bool obey(struct exchange *x, char kind, char *payload, size_t length)
{
	int reason;
	switch (kind) {
	case 'O':
		reason = write_all(1, payload, length);
		x->output_error = reason ? reason : x->output_error;
		return true;
	case 'E':
		write_all(2, payload, length);
		return true;
	case 'F':
		if (length >= 9)
			answer_read(x, payload, payload + 8);
		return length >= 9;
	case 'W': {
		size_t size = length >= 7 ? (size_t)number_at(payload + 5, 2) : 0;
		if (length < 7 + size)
			return false;
		char *path = strndup(payload + 7, size);
		if (!path)
			die("out of memory");
		answer(x, (uint32_t)write_file(path, (mode_t)number_at(payload, 4), payload[4] != 0, payload + 7 + size, length - 7 - size));
		free(path);
		return true;
	}
	case 'I':
		x->input_open = !(length == 1 && *payload == '0');
		if (length == 1 && *payload == 'r') {
			make_raw();
			watch(SIGWINCH);
			send_size(x);
		}
		return true;
	case 'T':
		for (const int *number = FORWARDED; *number; number++)
			watch(*number);
		return true;
	case 'C': {
		char **argv = json_strings(payload, "argv"), **env = json_strings(payload, "env");
		if (!argv || !*argv || !env)
			return false;
		watch(SIGCHLD);
		signal(SIGINT, SIG_IGN);        /* they are the command's, which has the terminal */
		signal(SIGQUIT, SIG_IGN);
		signal(SIGTSTP, SIG_IGN);
		x->child = run_child(argv, env);
		return x->child > 0;
	}
	case 'N':
		set_last_words(payload, length);
		return true;
	case 'K':
		if (length >= 4 && x->child > 0)
			signal_child(x->child, (int)number_at(payload, 4));
		return length >= 4;
	case 'G':
		x->go = strdup(payload);
		return x->go != NULL;
	case 'X':
		if (length >= 4) {
			x->code = (int)number_at(payload, 4) & 0xff;
			x->ended = true;
		}
		return length >= 4;
	}
	return false;
}

/* Takes the whole frames that have come. */
static bool take_frames(struct exchange *x)
{
	size_t at = 0;
	bool good = true;
	while (good && !x->ended && !x->go && x->in.length - at >= 5) {
		char *head = x->in.data + at;
		size_t length = (size_t)number_at(head + 1, 4);
		if (length > MAX_PAYLOAD)
			return false;
		if (x->in.length - at - 5 < length)
			break;
		char after = head[5 + length];  /* add keeps one byte of room behind */
		head[5 + length] = '\0';
		good = obey(x, *head, head + 5, length);
		head[5 + length] = after;
		at += 5 + length;
	}
	drop(&x->in, at);
	return good;
}

/* False: the connection is over. */
static bool receive(struct exchange *x)
{
	for (;;) {
		reserve(&x->in, READ_SIZE + 1);
		ssize_t got = recv(x->fd, x->in.data + x->in.length, READ_SIZE, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return true;
		if (got <= 0)
			return false;
		x->in.length += (size_t)got;
		if (!take_frames(x))
			return false;
		if (x->ended || x->go)
			return true;
	}
}

static void send_some(struct exchange *x)
{
	ssize_t sent = send(x->fd, x->out.data, x->out.length, MSG_NOSIGNAL);
	if (sent > 0)
		drop(&x->out, (size_t)sent);
	else if (sent < 0 && errno != EAGAIN && errno != EINTR)
		x->out.length = 0;              /* what the server said before it went is still to be read */
}

static void take_input(struct exchange *x)
{
	static char chunk[CHUNK];
	ssize_t got = read(0, chunk, sizeof chunk);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	size_t frame = begin_frame(&x->out, 'i');
	add(&x->out, chunk, got > 0 ? (size_t)got : 0);
	end_frame(&x->out, frame);
	x->input_open = got > 0;
}

static void take_signals(struct exchange *x)
{
	unsigned char numbers[64];
	ssize_t got = read(signal_pipe[0], numbers, sizeof numbers);
	for (ssize_t i = 0; i < got; i++) {
		if (numbers[i] == SIGWINCH) {
			send_size(x);
		} else if (numbers[i] != SIGCHLD) {
			size_t frame = begin_frame(&x->out, 'S');
			add_number(&x->out, numbers[i]);
			end_frame(&x->out, frame);
		}
	}
	int status;
	if (x->child > 0 && waitpid(x->child, &status, WNOHANG) == x->child) {
		x->child = 0;
		if (isatty(0))
			tcsetpgrp(0, getpgrp());
		signal(SIGTTOU, SIG_DFL);
		if (x->child_code)
			x->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		else if (!x->ended)
			answer(x, (uint32_t)status);
	}
}

/* Until the server says how to exit (true), or the connection ends before (false); x->go is set where it goes on. */
static bool converse(struct exchange *x)
{
	while (!x->go && (!x->ended || x->child > 0)) {
		struct pollfd wait[3] = {
			{x->ended ? -1 : x->fd, (short)(POLLIN | (x->out.length ? POLLOUT : 0)), 0},
			{signal_pipe[0], POLLIN, 0},
			{x->input_open && x->out.length < CHUNK ? 0 : -1, POLLIN, 0}};
		if (poll(wait, 3, -1) < 0) {
			if (errno == EINTR)
				continue;
			return false;
		}
		if (wait[1].revents)
			take_signals(x);
		if (wait[2].revents)
			take_input(x);
		if (wait[0].revents & POLLOUT)
			send_some(x);
		if ((wait[0].revents & ~POLLOUT) && !receive(x)) {
			if (x->child <= 0)
				return false;
			x->ended = x->child_code = true;
		}
	}
	return true;
}

static void become_python(char **argv)
{
	static char boot[] = "import sys; sys.path.insert(0, '" ROOT "'); from slurmbridge.client.launcher import main; main(sys.argv[1:])";
	static char *python[] = {PYTHON};
	enum { PYTHON_WORDS = sizeof python / sizeof *python };
	size_t count = 0;
	while (argv[count])
		count++;
	char **words = calloc(PYTHON_WORDS + count + 5, sizeof *words);
	if (!words)
		die("out of memory");
	memcpy(words, python, sizeof python);
	char **more = words + PYTHON_WORDS;
	more[0] = "-IS", more[1] = "-c", more[2] = boot, more[3] = (char *)command;
	memcpy(more + 4, argv, count * sizeof *words);
	execv(python[0], words);
	die("https:// needs the Python client, which could not be started");
}

int main(int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	command = slash ? slash + 1 : argc ? argv[0] : "slurmbridge";
	char **env = environ;
	argv += argc > 0;
	int spare;
	while ((spare = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && spare <= 2)
		;                               /* a closed standard stream must not become the connection */
	close(spare);
	if (argv[0] && !argv[1] && (strcmp(argv[0], "-V") == 0 || strcmp(argv[0], "--version") == 0)) {
		puts("slurm " SLURM_VERSION);
		return 0;
	}
	const char *credential, *address = destination(argv, &credential);
	for (;;) {
		struct exchange x = {0};
		if (strncmp(address, "https://", 8) == 0)
			become_python(argv);
		if (strncmp(address, "unix://", 7) && strncmp(address, "tcp://", 6)) {
			struct bytes b = {0};
			add_text(&b, "SLURMBRIDGE_URL is neither unix:// nor https://: ");
			add_text(&b, address);
			return unreachable(argv, b.data);
		}
		x.fd = open_connection(address);
		if (x.fd < 0) {
			const char *reason = errno == EAGAIN || errno == EINPROGRESS || errno == ETIMEDOUT ? TIMED_OUT : AWAY;
			const char *daemon = value_of("SLURMBRIDGE_STEPD");
			if (strcmp(command, "scontrol") || !*daemon || address == daemon)
				return unreachable(argv, reason);
			address = daemon;       /* host lists are expanded next door too: jobs need no controller for that */
			credential = value_of("SLURMBRIDGE_CREDENTIAL");
			continue;
		}
		add_request(&x.out, argv, env, credential);
		bool good = converse(&x);
		restore_terminal();
		if (!good)
			return unreachable(argv, LOST);
		if (!x.go) {
			if (x.output_error && x.code == 0) {
				fprintf(stderr, "%s: error: write to standard output: %s\n", command, strerror(x.output_error));
				return 1;
			}
			return x.code;
		}
		close(x.fd);
		free(x.in.data);
		free(x.out.data);
		char **new_address = json_strings(x.go, "address"), **new_credential = json_strings(x.go, "credential");
		char **new_argv = json_strings(x.go, "argv"), **new_env = json_strings(x.go, "env");
		if (!new_address)
			return unreachable(argv, LOST);
		address = *new_address;
		credential = new_credential ? *new_credential : "";
		argv = new_argv ? new_argv : argv;
		env = new_env ? new_env : env;
	}
}
