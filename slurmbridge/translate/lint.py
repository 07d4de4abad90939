"""``slurmbridge lint SCRIPT``: what becomes of each directive, with the reason.

Verdicts: ``honoured`` (does here what it does in Slurm), ``approximated`` (does something near), ``recorded`` (kept
and shown, not acted on), ``refused`` (sbatch ends with an error, here as in Slurm), ``ignored`` (sbatch does not even
read the line). The options' outcomes are data; everything not listed is honoured.
"""
from __future__ import annotations

from typing import NamedTuple

from slurmbridge.slurm import directives, foreign
from slurmbridge.slurm.getopt import Parser
from slurmbridge.slurm.option_values import Caller, ClientExit, Log, OptionSet
from slurmbridge.slurm.options import OPTIONS, table_of
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.translate.call import Call, ClientError
from slurmbridge.translate.request import build_requests

HONOURED, APPROXIMATED, RECORDED, REFUSED, IGNORED = "honoured", "approximated", "recorded", "refused", "ignored"
_DASHES = "‐‑‒–—―−"

_NO_TOPOLOGY = "nodes have no blocks here; kept and shown"
_NO_HARDWARE = "clock rates are not changed; checked, kept and shown"
_NO_FIRMWARE = "nodes are not rebooted for a job; kept and shown"
_NO_KEPT_CONTAINER = "a pod's file system goes with the pod; name an image"
_NO_BURST = "there are no burst buffers; use a volume"
_POD = "of the job's pod; where jobs are plain processes (local engine) the job is refused"
_AFFINITY = "tasks are bound to CPUs where TaskPlugin has task/affinity"
_NO_SPEC = "dropped without AllowSpecResourcesUsage, as in Slurm; with it kept and shown, and no cores are set aside"

OUTCOMES: dict[str, tuple[str, str]] = {
    "acctg-freq": (APPROXIMATED, "how often tasks are sampled; energy, network and file systems are not"),
    "batch": (RECORDED, "checked, kept and shown; the script runs on the first node of the allocation"),
    "bb": (RECORDED, _NO_BURST), "bbf": (RECORDED, _NO_BURST),
    "cluster-constraint": (RECORDED, "one controller serves one cluster"),
    "comment": (HONOURED, "free text, kept and shown"),
    "consolidate-segments": (RECORDED, _NO_TOPOLOGY), "spread-segments": (RECORDED, _NO_TOPOLOGY),
    "segment": (RECORDED, _NO_TOPOLOGY),
    "switches": (HONOURED, "with TopologyPlugin=topology/tree; elsewhere kept and shown, as in Slurm"),
    "container": (APPROXIMATED, "on Kubernetes the pod's image, elsewhere kept and shown; "
                                "an OCI bundle on disk is not unpacked"),
    **dict.fromkeys(("container-image", "container-mounts", "container-mount-home"), (HONOURED, _POD)),
    **dict.fromkeys(("container-name", "container-save"), (RECORDED, _NO_KEPT_CONTAINER)),
    **dict.fromkeys(("container-entrypoint", "no-container-entrypoint", "container-entrypoint-log"),
                    (RECORDED, "a pod's first process is the step daemon; the image's entry point is not run")),
    "container-unshare": (RECORDED, "a pod has namespaces of its own"),
    "container-id": (RECORDED, "no runtime keeps containers between jobs"),
    "context": (RECORDED, "SELinux contexts come from the pod's security context"),
    "core-spec": (RECORDED, _NO_SPEC), "thread-spec": (RECORDED, _NO_SPEC),
    "cpu-freq": (RECORDED, _NO_HARDWARE), "gpu-freq": (RECORDED, _NO_HARDWARE),
    "delay-boot": (RECORDED, _NO_FIRMWARE),
    "reboot": (RECORDED, "refused to users, as in Slurm; for administrators: " + _NO_FIRMWARE),
    "distribution": (APPROXIMATED, "tasks are laid out over nodes as asked; within a node they are bound in the order "
                                   "of its CPUs"),
    "exclusive=mcs": (RECORDED, "there is no MCS plugin"), "exclusive=topo": (RECORDED, _NO_TOPOLOGY),
    "extra": (RECORDED, "free text"),
    "gres-flags": (RECORDED, "which devices and cores are near to each other is not looked at"),
    "hint": (HONOURED, "threads and cores are counted; " + _AFFINITY),
    "mail-type": (RECORDED, "no mail is sent"), "mail-user": (RECORDED, "no mail is sent"),
    "mcs-label": (RECORDED, "there is no MCS plugin"),
    "mem-bind": (RECORDED, "memory is not bound to NUMA nodes; checked, kept and shown"),
    "network": (RECORDED, "networks come with the node or the pod"),
    "oom-kill-step": (RECORDED, "the kernel's memory group decides"),
    "prefer": (APPROXIMATED, "nodes with these features are tried first; tests look at no preferred ones"),
    "profile": (RECORDED, "there is no profiling plugin"),
    "requeue=expedite": (APPROXIMATED, "requeued as by --requeue, without going ahead of other jobs"),
    "resources": (RECORDED, "no consumable resources beyond licenses are known"),
    "resv-ports": (RECORDED, "ports are not given out; a pod has all of its own"),
    "stepmgr": (HONOURED, "steps never need the controller here"),
    "tres-bind": (APPROXIMATED, "gres/gpu decides which GPUs a task sees, as --gpu-bind does; the rest is kept"),
}
"""Option name, or name=value where that value has an outcome of its own -> (verdict, reason)."""


class Finding(NamedTuple):
    """One line of the report. ``line`` counts from 1; 0: the command line or the script as a whole."""

    line: int
    directive: str
    verdict: str
    reason: str


def lint_script(script: str, conf: SlurmConf | None = None, file_name: str = "script") -> list[Finding]:
    """All findings in the script's order, then what Slurm says of the whole."""
    settings = conf or SlurmConf()
    findings = [*_directives(script, settings, file_name), *_not_read(script), *_foreign(script, file_name)]
    findings.sort(key=lambda finding: finding.line)
    if all(finding.verdict != REFUSED for finding in findings):
        findings += _whole(script, settings, file_name)
    return findings


def outcome(name: str, value: str | None) -> tuple[str, str]:
    """(verdict, reason) of an option by its long name."""
    return OUTCOMES.get(f"{name}={value}") or OUTCOMES.get(name, (HONOURED, ""))


def _directives(script: str, conf: SlurmConf, file_name: str) -> list[Finding]:
    """Each option of each #SBATCH line, mistakes included."""
    findings: list[Finding] = []
    words: list[str] = []
    lines: list[int] = []
    log = Log("sbatch")
    for number, _, rest in directives.directive_lines(script):
        try:
            found = directives.line_arguments(rest.lstrip(directives.SPACE), number, file_name, log)
        except directives.DirectiveError as wrong:
            findings.append(Finding(number, rest.strip(), REFUSED, str(wrong)))
            continue
        if directives.separator_at(rest.lstrip(directives.SPACE)):
            findings.append(Finding(number, rest.strip(), HONOURED, "begins the next component of the job"))
        words += found
        lines += [number] * len(found)
    opts = OptionSet("sbatch", Caller({}, "/", 0.0, 0, conf.values), log)
    names = {option.key: option.name for option in reversed(OPTIONS) if option.name and "B" in option.commands}
    start = 0
    while start < len(words):
        parser = Parser("sbatch", words[start:], table_of("sbatch"))
        before = 0
        while (item := parser.next()) is not None:
            text = " ".join(words[start + before:start + parser.index]) or words[start + before]
            findings.append(_judge(opts, item, parser.error, lines[start + before], text, names))
            before = min(parser.index, len(words) - start - 1)
        start += parser.index
        if start < len(words):
            word = words[start]
            findings.append(Finding(lines[start], word, REFUSED, _stray(word)))
            start += 1
    return findings


def _judge(opts: OptionSet, item: tuple[str, str | None], error: str, line: int, text: str,
           names: dict[str, str]) -> Finding:
    if error:
        return Finding(line, text, REFUSED, error.removeprefix("sbatch: "))
    opts.log.lines.clear()
    option = opts.options[item[0]]
    if option.early:
        return Finding(line, text, IGNORED, f"--{option.name} counts on the command line only")
    try:
        opts.process(item[0], item[1], by_env=False)
    except ClientExit:
        return Finding(line, text, REFUSED, opts.log.text.strip().replace("sbatch: ", "").replace("\n", "; "))
    verdict, reason = outcome(names.get(option.key, option.name), item[1])
    return Finding(line, text, verdict, reason)


def _stray(word: str) -> str:
    if word[:1] in _DASHES:
        return f"Invalid directive found in batch script: {word} (it begins with a typographic dash, not with \"-\")"
    return f"Invalid directive found in batch script: {word}"


def _not_read(script: str) -> list[Finding]:
    """Lines that look like directives and are none."""
    read = {number for number, _, _ in directives.directive_lines(script)}
    last = max(read, default=0)
    findings: list[Finding] = []
    command = 0
    for number, line in enumerate(script.split("\n"), 1):
        stripped = line.strip()
        if not command and stripped and not stripped.startswith("#"):
            command = number
        if number in read or not stripped.startswith("#"):
            continue
        body = stripped.lstrip("#").lstrip()
        if not body.upper().startswith("SBATCH"):
            continue
        if command and number > command and line.startswith("#SBATCH"):
            reason = f"stands after the first command (line {command})"
        elif line.startswith("#SBATCH"):
            reason = "stands after the first command"
        elif body.startswith("SBATCH"):
            reason = "a comment: a directive begins with exactly #SBATCH at the start of its line"
        else:
            reason = "a comment: #SBATCH is written in capitals"
        if stripped.startswith("##") and number <= last + 1:
            reason = "a comment: two # switch a directive off"
        findings.append(Finding(number, stripped, IGNORED, reason))
    return findings


def _foreign(script: str, file_name: str) -> list[Finding]:
    findings: list[Finding] = []
    for prefix, apply in (("#BSUB", foreign.apply_bsub), ("#PBS", foreign.apply_pbs)):
        log = Log("sbatch")
        opts = OptionSet("sbatch", Caller({}, "/", 0.0, 0), log)
        rows = [(n, line) for n, line in enumerate(script.split("\n"), 1) if line.startswith(prefix)]
        for number, line in rows:
            try:
                apply(directives.line_arguments(line[len(prefix):], number, file_name, log), opts, 1)
                findings.append(Finding(number, line, APPROXIMATED, "read as sbatch reads other systems' directives: "
                                                                    "options with a counterpart only"))
            except (ClientExit, directives.DirectiveError) as wrong:
                text = log.text.strip().replace("sbatch: ", "").replace("\n", "; ")
                findings.append(Finding(number, line, REFUSED, text or str(wrong)))
        if rows:
            break
    return findings


def _whole(script: str, conf: SlurmConf, file_name: str) -> list[Finding]:
    """What the client says once it sees everything together."""
    call = Call("sbatch", (f"/{file_name}",), {}, "/", conf=conf)
    data = script.encode("utf-8", "surrogateescape")

    def read(path: str) -> bytes:
        if path == f"/{file_name}":
            return data
        raise FileNotFoundError(2, "No such file or directory", path)

    try:
        submission = build_requests(call, read)
    except ClientError as refused:
        text = refused.stderr_text.strip().replace("sbatch: ", "").replace("\n", "; ")
        return [Finding(0, file_name, REFUSED, text)]
    return [Finding(0, file_name, HONOURED, line.removeprefix("sbatch: ")) for line in submission.warnings]
