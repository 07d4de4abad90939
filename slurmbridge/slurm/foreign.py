"""``#PBS`` and ``#BSUB`` directives: what sbatch makes of other systems' scripts (sbatch(1), --ignore-pbs).

Only options with a counterpart do something; the rest of the known ones is silently passed over, unknown ones end
the client. The result goes through the same setters as sbatch's own options.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from slurmbridge.slurm import hostlist
from slurmbridge.slurm.getopt import LongOption, OptionTable, Parser
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.option_values import ClientExit, OptionSet

Set = Callable[[str, "str | None"], None]


def _table(short: str, long: str) -> OptionTable:
    names = (entry.partition(":") for entry in long.split())
    return OptionTable(short, [LongOption(name, {"": 1, "-": 0, "?": 2}[key[1:]], key[0]) for name, _, key in names])


_BSUB = _table("c:e:J:m:M:n:o:q:W:x", "cwd:c error_file:e job_name:J hostname:m memory_limit:M output_file:o "
                                      "queue_name:q time:W exclusive:x-")
_PBS = _table("a:A:c:C:d:e:hIj:J:k:l:m:M:N:o:p:q:r:S:t:u:v:VW:w:z",
              "start_time:a account:A checkpoint:c working_dir:C error:e hold:h- interactive:I- join:j? job_array:J "
              "keep:k resource_list:l mail_options:m mail_user_list:M job_name:N out:o priority:p destination:q "
              "rerunable:r script_path:S array:t running_user:u variable_list:v all_env:V- attributes:W no_std:z-")
_BSUB_SAME = {"c": "D", "e": "e", "J": "J", "o": "o", "q": "p", "W": "t"}
_PBS_SAME = {"a": "b", "A": "A", "e": "e", "o": "o", "w": "D", "d": "D", "h": "H", "J": "a", "t": "a",
             "M": "mail-user", "N": "J", "p": "nice", "q": "p"}
_PBS_IGNORED = frozenset("cCIjkrSuVz")


def apply_bsub(arguments: list[str], opts: OptionSet, error_exit: int) -> None:
    """``#BSUB`` arguments. Raises ClientExit."""
    args = ["-c" if index % 2 == 0 and word == "-cwd" else word for index, word in enumerate(arguments)]

    def handle(letter: str, value: str | None, set_option: Set) -> None:
        text = value or ""
        if letter in _BSUB_SAME:
            set_option(_BSUB_SAME[letter], value)
        elif letter == "m":
            set_option("w", text.replace(" ", ","))
        elif letter == "M":
            set_option("mem-per-cpu", text + "K" if text[-1:].isdigit() else text)
        elif letter == "n":
            most = text.partition(",")[2] if "," in text else text
            if "," in text and not most:
                opts.log.error(f"#BSUB -n format not correct given: '{text}'")
                raise ClientExit(error_exit)
            set_option("n", most)
        else:
            set_option("exclusive", None)

    _apply(args, _BSUB, opts, error_exit, handle)


def apply_pbs(arguments: list[str], opts: OptionSet, error_exit: int) -> None:
    """``#PBS`` arguments. Raises ClientExit."""

    def handle(letter: str, value: str | None, set_option: Set) -> None:
        text = value or ""
        if letter in _PBS_SAME:
            set_option(_PBS_SAME[letter], value)
        elif letter == "l":
            _Resources(text, opts, set_option, error_exit).read()
        elif letter == "m":
            set_option("mail-type", _mail_type(text))
        elif letter == "v":
            before = opts["export"]
            set_option("export", f"{before},{text}" if before else text)
        elif letter == "W":
            if text[:6].lower() == "umask=":
                set_option("umask", text[6:])
            elif text[:7].lower() == "depend=":
                set_option("d", text[7:])
            else:
                opts.log.info(f"Ignored PBS attributes: {text}", level=4)

    _apply(arguments, _PBS, opts, error_exit, handle)


def _apply(args: list[str], table: OptionTable, opts: OptionSet, error_exit: int,
           handle: Callable[[str, str | None, Set], None]) -> None:
    def set_option(key: str, value: str | None) -> None:
        opts.process(key, value, by_env=False)

    parser = Parser("sbatch", args, table)
    while (item := parser.next()) is not None:
        letter, value = item
        if letter == "?" and parser.error:
            opts.log.raw(parser.error)
            opts.log.error("Unrecognized command line parameter ?")
            raise ClientExit(error_exit)
        if table is not _PBS or letter not in _PBS_IGNORED:
            handle(letter, value, set_option)
    if parser.index < len(args):
        opts.log.error(f"Invalid argument: {args[parser.index]}")
        raise ClientExit(error_exit)


def _mail_type(text: str) -> str | None:
    lower = text.lower()
    if "n" in lower:
        return "NONE"
    return ",".join(name for letter, name in (("b", "BEGIN"), ("e", "END"), ("a", "FAIL")) if letter in lower) or None


class _Resources:
    """``-l nodes=2:ppn=4,walltime=1:00:00,mem=4gb``: names are looked for at every position, as sbatch does."""

    _PASSED_OVER = ("arch=", "host=", "opsys=", "other=", "pmem=", "pvmem=", "software=", "vmem=")

    def __init__(self, text: str, opts: OptionSet, set_option: Set, error_exit: int) -> None:
        self.text, self.opts, self.set, self.error_exit = text, opts, set_option, error_exit
        self.at = 0
        self.gpus = 0
        self.pro: set[str] = set()            # PBS Pro words met: select, ncpus, mpiprocs

    def value(self, separator: str = ",") -> str:
        end = self.text.find(separator, self.at)
        value = self.text[self.at:] if end < 0 else self.text[self.at:end]
        self.at = len(self.text) if end < 0 else end + 1
        return value

    def size(self) -> str:
        value = self.value()
        return value[:-1] if value[-1:].upper() == "B" else value

    def read(self) -> None:
        while self.at < len(self.text):
            rest = self.text[self.at:]
            name = next((n for n in self._NAMES if (rest.lower() if n in self._ANY_CASE else rest).startswith(n)), "")
            if not name:
                self.at += 1
                continue
            self.at += len(name)
            if name in self._PASSED_OVER:
                self.value()
            else:
                self._NAMES[name](self)
        self.finish()

    def finish(self) -> None:
        opts = self.opts
        per_node = opts["ntasks_per_node"]
        if len(self.pro) == 3 and per_node is not None and opts["min_cpus"] > per_node:
            self.set("c", str(opts["min_cpus"] // per_node))
        if self.gpus > 0:
            gpu = f"gpu:{self.gpus}"
            self.set("gres", f"{opts['gres']},{gpu}" if opts["gres"] else gpu)

    def accelerator(self) -> None:
        if self.text[self.at:self.at + 4].lower() == "true" and self.gpus < 1:
            self.gpus = 1

    def time(self) -> None:
        self.set("t", self.value())

    def file(self) -> None:
        self.set("tmp", self.size())

    def mem(self) -> None:
        self.set("mem", self.size())

    def mpiprocs(self) -> None:
        self.pro.add("mpiprocs")
        self.set("ntasks-per-node", self.value(":"))

    def naccelerators(self) -> None:
        self.gpus = self.opts.integer("naccelerators", self.value(), positive=True)

    def ncpus(self) -> None:
        self.pro.add("ncpus")
        self.set("mincpus", self.value(":"))

    def nice(self) -> None:
        self.set("nice", self.value())

    def proc(self) -> None:
        value, before = self.value(), self.opts["constraint"]
        self.set("C", f"{value},{before}" if before else value)
        self.value()

    def select(self) -> None:
        self.pro.add("select")
        self.set("N", self.value(":"))

    def nodes(self) -> None:
        names = hostlist.Hostlist()
        tasks_per_node = count = 0
        text, at = self.value(), 0

        def part() -> str:
            nonlocal at
            start = at
            while at < len(text) and text[at] not in "+:":
                at += 1
            found = text[start:at]
            at += 1
            return found

        while at < len(text):
            if text.startswith("gpus=", at):
                at += 5
                self.set("gpus-per-node", part())
            elif text.startswith("ppn=", at):
                at += 4
                tasks_per_node += (leading_int(part()) or (0, ""))[0]
            elif text[at].isdigit():
                count += (leading_int(part()) or (0, ""))[0]
            elif text[at].isalpha():
                names.push_host(part())
            else:
                at += 1
        if count:
            self.set("N", str(count))
        if tasks_per_node:
            self.set("n", str(tasks_per_node * (count or 1)))
        if len(names):
            self.set("w", names.ranged())

    _ANY_CASE = frozenset({"accelerator=", "mpiprocs=", "naccelerators=", "ncpus=", "select="})
    _NAMES: ClassVar[dict[str, Callable[[_Resources], object]]] = {
        "accelerator=": accelerator, "arch=": value, "cput=": time, "file=": file, "host=": value, "mem=": mem,
        "mpiprocs=": mpiprocs, "naccelerators=": naccelerators, "ncpus=": ncpus, "nice=": nice, "nodes=": nodes,
        "opsys=": value, "other=": value, "pcput=": time, "pmem=": value, "proc=": proc, "pvmem=": value,
        "select=": select, "software=": value, "vmem=": value, "walltime=": time}
