"""One connection after its request: the server's frames are obeyed until it says how to exit.

A single loop over poll(2): the server, the standard input where it was asked for, and a pipe on which signals arrive.
Input is read only while little waits to be sent, so a slow peer stops the user's pipe and not the other way round.
"""
from __future__ import annotations

import _signal as signal
import os
import select
import sys
from errno import EACCES, EFBIG, EINTR, EINVAL, EIO, ENOENT, ENOTDIR

from slurmbridge.client import protocol

TYPE_CHECKING = False           # typing itself takes longer to import than a whole call
if TYPE_CHECKING:
    from collections.abc import Callable

READ_SIZE = 256 << 10
LETHAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
             signal.SIGTSTP, signal.SIGCONT)


class Lost(Exception):
    """The connection ended before the command did."""


class GoOn(Exception):
    """``G``: go on elsewhere. ``args[0]`` is the JSON text."""


def read_file(limit: int, path: bytes) -> tuple[int, bytes]:
    """(errno, content). A file of more than ``limit`` bytes is EFBIG."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        return error.errno or EIO, b""
    except ValueError:
        return EINVAL, b""
    content = bytearray()
    try:
        while data := os.read(descriptor, READ_SIZE):
            content += data
            if len(content) > limit:
                return EFBIG, b""
    except OSError as error:
        return error.errno or EIO, b""
    finally:
        os.close(descriptor)
    return 0, bytes(content)


def write_file(mode: int, exclusive: bool, path: bytes, data: bytes) -> int:
    """Writes a regular file whole or not at all (temporary file, rename); anything else directly. The errno."""
    temporary = b""
    try:
        special = os.path.lexists(path) and not os.path.isfile(path)
        if exclusive or special:
            flags = os.O_EXCL | os.O_CREAT if exclusive else 0
            target = path
        else:
            target = os.path.realpath(path)
            temporary = b"%s.%d~" % (target, os.getpid())
            flags = os.O_EXCL | os.O_CREAT
        descriptor = os.open(temporary or target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | flags, mode)
    except OSError as error:
        return error.errno or EIO
    except ValueError:
        return EINVAL
    try:
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)
        if temporary:
            os.rename(temporary, target)
    except OSError as error:
        if temporary or exclusive:
            os.unlink(temporary or target)
        return error.errno or EIO
    return 0


def write_all(descriptor: int, data: bytes) -> None:
    """Waits where somebody made the descriptor non-blocking. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view):]
        except BlockingIOError:
            waiter = select.poll()
            waiter.register(descriptor, select.POLLOUT)
            waiter.poll()


class Terminal:
    """Raw mode and the way back."""

    def __init__(self) -> None:
        self._saved: list[object] | None = None

    def make_raw(self) -> None:
        import termios
        import tty
        if self._saved is None and os.isatty(0):
            self._saved = termios.tcgetattr(0)
            tty.setraw(0, termios.TCSADRAIN)

    def restore(self) -> None:
        if self._saved is not None:
            import termios
            termios.tcsetattr(0, termios.TCSADRAIN, self._saved)
            self._saved = None


def terminal_size() -> tuple[int, int] | None:
    """(rows, columns) of the standard output's or input's terminal."""
    for descriptor in (1, 0):
        try:
            columns, rows = os.get_terminal_size(descriptor)
        except OSError:
            continue
        return rows, columns
    return None


class Child:
    """``C``: the user's command on the user's terminal, in the foreground where there is one."""

    def __init__(self, command: str, argv: list[str], env: list[str]) -> None:
        self._foreground = os.isatty(0)
        words = [protocol.raw(word) for word in argv]
        environment = dict(protocol.raw(entry).split(b"=", 1) for entry in env if "=" in entry)
        environment |= {name: os.environb[name] for name in protocol.OWN if name in os.environb}
        ignored = signal.signal(signal.SIGTTOU, signal.SIG_IGN) if self._foreground else None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setpgid(0, 0)
                if self._foreground:
                    os.tcsetpgrp(0, os.getpid())
                signal.set_wakeup_fd(-1)
                for number in (*FORWARDED, signal.SIGTTOU, signal.SIGPIPE, signal.SIGWINCH, signal.SIGCHLD):
                    signal.signal(number, signal.SIG_DFL)
                os.execvpe(words[0], words, environment)
            except BaseException as error:
                missing = isinstance(error, OSError) and error.errno in (ENOENT, ENOTDIR, EACCES)
                reason = error.strerror if isinstance(error, OSError) else error
                text = f'Unable to find command "{argv[0]}"' if missing else (
                    f'Unable to exec command "{argv[0]}": {reason}')
                os.write(2, protocol.raw(f"{command}: error: _fork_command: {text}\n"))
                code = environment.get(b"SLURM_EXIT_ERROR", b"")
                os._exit(int(code) if code.isdigit() and int(code) else 1)
        try:                            # noqa: SIM105 (whichever of the two is first: signals go to the group)
            os.setpgid(self.pid, self.pid)
        except OSError:
            pass
        if self._foreground:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        self._ignored = ignored

    def kill(self, number: int) -> None:
        """Its process group, and what it has put in the terminal's foreground beside itself."""
        try:
            group = os.tcgetpgrp(0) if self._foreground else -1
            if group > 0 and group not in (self.pid, os.getpgrp()):
                os.killpg(group, signal.SIGHUP)
            if number:
                os.killpg(self.pid, number)
        except OSError:
            pass                        # it is ending by itself

    def ended(self) -> int | None:
        """The wait status, once it is over."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        if self._foreground:
            try:        # noqa: SIM105 (contextlib takes longer to import than the whole exchange)
                os.tcsetpgrp(0, os.getpgrp())
            except OSError:
                pass
            signal.signal(signal.SIGTTOU, self._ignored)
        return status


class Exchange:
    """``stream`` is a ``transport`` stream, ``first`` what came with its greeting."""

    def __init__(self, command: str, stream, request: bytes, first: bytes = b"") -> None:  # type: ignore[no-untyped-def]
        self._command = command
        self._stream = stream
        self._frames = protocol.Frames(first)
        self._outgoing = bytearray(request)
        self._input_open = False
        self._terminal = Terminal()
        self._child: Child | None = None
        self._exit: int | None = None
        self._signals = -1
        self._broken_output = 0
        self._before: dict[int, object] = {}  # what signals did that end us with last words
        self._handlers: dict[bytes, Callable[[bytes], None]] = {
            protocol.OUTPUT: self._output, protocol.ERROR: self._error, protocol.READ: self._read,
            protocol.WRITE: self._write, protocol.WANT_INPUT: self._want_input, protocol.FORWARD: self._forward,
            protocol.RUN: self._run, protocol.KILL: self._kill, protocol.GO: self._go, protocol.EXIT: self._end,
            protocol.LAST_WORDS: self._set_last_words}

    def run(self) -> int:
        """The exit code. Raises Lost, GoOn or ProtocolError."""
        try:
            self._take(b"")
            while self._exit is None or self._child is not None:
                self._turn()
        finally:
            self._terminal.restore()
        if self._broken_output and not self._exit:
            reason = os.strerror(self._broken_output)
            write_all(2, protocol.raw(f"{self._command}: error: write to standard output: {reason}\n"))
            return 1
        return self._exit & 0xFF if self._exit is not None else 1

    def _turn(self) -> None:
        """Waits for the next thing to happen and deals with it."""
        waiter = select.poll()
        if self._exit is None:
            waiter.register(self._stream.fileno(), select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        if self._signals >= 0:
            waiter.register(self._signals, select.POLLIN)
        if self._input_open and len(self._outgoing) < protocol.CHUNK:
            waiter.register(0, select.POLLIN)
        for descriptor, happened in waiter.poll():
            if descriptor == self._signals:
                self._take_signals()
            elif descriptor == 0 and self._input_open:
                self._take_input()
            elif self._exit is None and descriptor == self._stream.fileno():
                if self._outgoing and happened & select.POLLOUT:
                    self._send()
                if happened & ~select.POLLOUT:
                    self._receive()

    # --- what happens
    def _send(self) -> None:
        try:
            sent = self._stream.send(self._outgoing)
        except OSError:
            self._outgoing.clear()      # what the server said before it went is still to be read
            return
        del self._outgoing[:sent]

    def _receive(self) -> None:
        while (data := self._stream.receive(READ_SIZE)) is not None:
            if not data:
                self._lose()
                return
            self._take(data)
            if self._exit is not None:
                return

    def _lose(self) -> None:
        if self._child is None:
            raise Lost
        self._exit = -1                 # the user's command goes on; its own code is ours then

    def _take(self, data: bytes) -> None:
        for kind, payload in self._frames.feed(data):
            handler = self._handlers.get(kind)
            if handler is None:
                raise protocol.ProtocolError(f"unknown frame {kind!r}")
            handler(payload)

    def _take_input(self) -> None:
        try:
            data = os.read(0, protocol.CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == EINTR:
                return
            data = b""
        if not data:
            self._input_open = False
        self._outgoing += protocol.pack(protocol.INPUT, data)

    def _take_signals(self) -> None:
        for number in os.read(self._signals, 512):
            if number == signal.SIGWINCH:
                self._send_size()
            elif number in FORWARDED:
                self._outgoing += protocol.pack_number(protocol.SIGNAL, number)
        if self._child is not None and (status := self._child.ended()) is not None:
            self._child = None
            if self._exit is None:
                self._outgoing += protocol.pack_answer(status)
            elif self._exit < 0:
                self._exit = os.waitstatus_to_exitcode(status)
                self._exit = 128 - self._exit if self._exit < 0 else self._exit

    def _send_size(self) -> None:
        size = terminal_size()
        if size is not None:
            self._outgoing += protocol.pack_size(*size)

    def _watch(self, numbers: tuple[int, ...]) -> None:
        """From now on these signals come as bytes through the pipe."""
        if self._signals < 0:
            self._signals, writer = os.pipe()
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda _number, _frame: None)

    # --- the server's frames
    def _output(self, payload: bytes) -> None:
        try:
            write_all(1, payload)
        except OSError as error:
            self._broken_output = error.errno or EIO

    def _error(self, payload: bytes) -> None:
        try:        # noqa: SIM105
            write_all(2, payload)
        except OSError:
            pass                        # nowhere left to complain

    def _read(self, payload: bytes) -> None:
        self._outgoing += protocol.pack_answer(*read_file(*protocol.unpack_read(payload)))

    def _write(self, payload: bytes) -> None:
        self._outgoing += protocol.pack_answer(write_file(*protocol.unpack_write(payload)))

    def _want_input(self, payload: bytes) -> None:
        self._input_open = payload != b"0"
        if payload == b"r":
            self._terminal.make_raw()
            self._watch((signal.SIGWINCH,))
            self._send_size()

    def _forward(self, _payload: bytes) -> None:
        self._watch(FORWARDED)

    def _set_last_words(self, payload: bytes) -> None:
        def leave(_number: int, _frame: object) -> None:
            try:        # noqa: SIM105
                write_all(2, payload[1:])
            except OSError:
                pass
            os._exit(payload[0])

        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        for number in LETHAL if payload else ():
            if (before := signal.getsignal(number)) is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, leave)

    def _run(self, payload: bytes) -> None:
        import json
        order = json.loads(payload)
        self._watch((signal.SIGCHLD,))
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)       # they are the command's, which has the terminal
        sys.stdout.flush()
        self._child = Child(self._command, order["argv"], order["env"])

    def _kill(self, payload: bytes) -> None:
        number = protocol.unpack_number(payload)
        if self._child is not None:
            self._child.kill(number)

    def _go(self, payload: bytes) -> None:
        raise GoOn(payload)

    def _end(self, payload: bytes) -> None:
        self._exit = protocol.unpack_number(payload)
