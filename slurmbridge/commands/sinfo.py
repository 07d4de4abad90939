"""sinfo: partitions and nodes at a glance. Options, defaults and texts as in sinfo(1) of 25.11."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurmbridge.commands import node_view, sinfo_fields, sinfo_help
from slurmbridge.commands.common import (
    VERSION_LINE,
    Stop,
    TimeTexts,
    check_clusters,
    command,
    date_line,
    hosts_of,
    parse_options,
    refuse_json,
)
from slurmbridge.commands.sinfo_rows import Grouping, NodeFacts, Row, gather, node_facts, sort_rows
from slurmbridge.slurm import node_states
from slurmbridge.slurm.format import ListColumn, ListLayout, byte_length, parse_letters, parse_names
from slurmbridge.slurm.getopt import OptionTable, long_options
from slurmbridge.views.session import Reply, Session

NAME = "sinfo"
OPTIONS = OptionTable("adeFhi:lM:n:No:O:p:rRsS:t:TvV", long_options("""
    autocomplete= all:a dead:d exact:e federation future:F help helpformat helpFormat helpstate hide iterate=:i local
    long:l cluster=:M clusters=:M nodes=:n noconvert noheader:h Node:N format=:o Format=:O partition=:p responding:r
    list-reasons:R summarize:s sort=:S states=:t reservation:T usage verbose:v version:V json=? yaml=?"""))

_SUMMARY = "partition:9 ,available:.5 ,time:.10 ,nodeaiot:.16 ,nodelist:0"
_NODES = "nodelist:0 ,nodes:.6 ,partition:.9 ,statecompact:6"
_NODES_LONG = ("nodelist:0 ,nodes:.6 ,partition:.9 ,statelong:.11 ,cpus:4 ,socketcorethread:.8 ,memory:.6 ,disk:.8 ,"
               "weight:.6 ,features:.8 ,reason:20")
_REASONS = "reason:20 ,user:9 ,timestamp:19 ,nodelist:0"
_REASONS_LONG = "reason:20 ,userlong:12 ,timestamp:19 ,statecompact:6 ,nodelist:0"
_PLAIN = "partition:9 ,available:.5 ,time:.10 ,nodes:.6 ,statecompact:.6 ,nodelist:0"
_LONG = ("partition:9 ,available:.5 ,time:.10 ,size:.10 ,root:.4 ,oversubscribe:.8 ,groups:.10 ,nodes:.6 ,"
         "statelong:.11 ,reservation:.11 ,nodelist:0")


@dataclass(slots=True)
class Options:
    """What the command line and the environment ask for."""

    all: bool = False
    dead: bool = False
    exact: bool = False
    future: bool = False
    federation: bool = False
    no_header: bool = False
    iterate_s: int = 0
    long: bool = False
    clusters: str | None = None
    convert: bool = True
    nodes: list[str] | None = None
    nodes_text: str = ""
    by_node: bool = False
    format: str | None = None
    long_names: bool = False
    partitions: list[str] | None = None
    partition_text: str | None = None
    responding: bool = False
    reasons: bool = False
    summarize: bool = False
    sort: str | None = None
    states: list[tuple[bool, int]] | None = None       # (negated, state); [] fits no node
    states_text: str | None = None
    all_of_states: bool = False
    reservations: bool = False
    verbose: int = 0
    sizes_follow_data: frozenset[str] = frozenset()    # fields whose width is the data's
    errors: list[str] = field(default_factory=list)


def _state_list(text: str) -> tuple[list[tuple[bool, int]], bool]:
    """((negated, state) …, all must hold). Raises Stop."""
    if text.lower() == "all":
        return [(False, base) for base in range(len(node_states.BASES))], False
    found: list[tuple[bool, int]] = []
    for word in text.replace("+", ",").replace("&", ",").split(","):
        if not word:
            continue
        negated = word[0] in "~!"
        state = node_states.filter_number(word[1:] if negated else word)
        if state is None:
            bad = word[1:] if negated else word
            raise Stop(Reply("", f'{NAME}: error: Bad state string: "{bad}"\n'
                                 f"{NAME}: error: valid states: {node_states.FILTER_NAMES}\n", 1))
        found.append((negated, state))
    return found, "+" in text or "&" in text


def read_options(argv: Sequence[str], env: Mapping[str, str], table: sinfo_fields.FieldTable) -> Options:
    """Environment, then the command line. Raises Stop for mistakes and for what only prints help."""
    found = Options(all="SINFO_ALL" in env, future="SINFO_FUTURE" in env,
                    federation="SINFO_FEDERATION" in env, sort=env.get("SINFO_SORT"))
    if "SINFO_PARTITION" in env:
        if found.all:
            raise Stop.error(NAME, "Conflicting options, SINFO_ALL and SINFO_PARTITION, specified. "
                                   "Please choose one or the other.")
        _set_partitions(found, env["SINFO_PARTITION"])
    found.clusters = env.get("SLURM_CLUSTERS")
    given: set[str] = set()
    for key, value in parse_options(NAME, argv, OPTIONS):
        given.add(key)
        _set(found, key, value or "", table)
    if found.long and found.format is not None:
        raise Stop.fatal(NAME, "Options -o(--format) and -l(--long) are mutually exclusive. "
                               "Please remove one and retry.")
    if {"a", "p"} <= given:
        raise Stop.error(NAME, "Conflicting options, -a and -p, specified. Please choose one or the other.")
    if found.format is None:
        _default_format(found, env)
    if found.reasons and found.states is None:
        found.states, found.all_of_states = _state_list("down,fail,drain")
        found.states_text = "down"            # all that -v shows of it
    return found


def _set_partitions(found: Options, text: str) -> None:
    found.partition_text, found.all = text, True
    found.partitions = [word for word in text.split(",") if word]


_FLAGS = {"d": "dead", "e": "exact", "F": "future", "h": "no_header", "l": "long", "N": "by_node", "r": "responding",
          "R": "reasons", "federation": "federation", "s": "summarize", "T": "reservations"}


def _set(found: Options, key: str, value: str, table: sinfo_fields.FieldTable) -> None:
    if key in _FLAGS:
        setattr(found, _FLAGS[key], True)
    elif key == "a":
        found.all, found.partitions, found.partition_text = True, None, None
    elif key == "hide":
        found.all = False
    elif key == "i":
        digits = value.lstrip(" +")
        found.iterate_s = int(digits) if digits.isascii() and digits.isdigit() else 0
        if found.iterate_s <= 0:
            raise Stop.error(NAME, f"Error: invalid entry for --iterate={value}")
    elif key == "M":
        found.clusters = value
    elif key == "noconvert":
        found.convert = table.convert = False
    elif key == "n":
        found.nodes = hosts_of(NAME, value, "--nodes")
        found.nodes_text = found.nodes[0] if len(found.nodes) == 1 else value
    elif key in ("o", "O"):
        found.format = value
        found.long_names = found.long_names or key == "O"
    elif key == "p":
        _set_partitions(found, value)
    elif key == "S":
        found.sort = value
    elif key == "t":
        found.states_text = value
        found.states, every = _state_list(value)
        found.all_of_states = found.all_of_states or every
    elif key == "v":
        found.verbose += 1
    elif key in ("json", "yaml"):
        raise refuse_json(NAME, f"--{key}")
    else:
        texts = {"V": VERSION_LINE, "help": sinfo_help.HELP, "usage": sinfo_help.USAGE,
                 "helpformat": sinfo_fields.help_letters(table), "helpFormat": sinfo_fields.help_names(table),
                 "helpstate": node_states.FILTER_NAMES.replace(",", "\n") + "\n"}
        if key in texts:
            raise Stop(Reply(texts[key]))


def _default_format(found: Options, env: Mapping[str, str]) -> None:
    found.long_names = True
    partition, node = {"Partition", "PartitionName"}, {"NodeList", "NodeHost"}
    if found.summarize:
        found.format, sized = _SUMMARY, partition
    elif found.by_node:
        found.format, sized = _NODES_LONG if found.long else _NODES, partition | node
    elif found.reasons:
        found.format, sized = _REASONS_LONG if found.long else _REASONS, set()
    elif "SINFO_FORMAT" in env:
        found.format, found.long_names, sized = env["SINFO_FORMAT"], False, set()
    else:
        found.format, sized = _LONG if found.long else _PLAIN, partition
    found.sizes_follow_data = frozenset(sized)


def compile_format(found: Options, table: sinfo_fields.FieldTable) -> ListLayout[Row]:
    """The layout; what it named wrongly goes to ``found.errors`` as Slurm says it."""
    text = found.format or ""
    if found.long_names:
        layout = parse_names(text, table.fields)
        if text.lower() == "all":
            layout = ListLayout(parse_letters("%all", table.fields, all_tail=" ").columns, layout.invalid)
        found.errors += [f"{NAME}: error: Invalid job format specification: {name}\n" for name in layout.invalid]
    else:
        layout = parse_letters(text, table.fields, all_tail=" ")
        found.errors += [f"Invalid node format specification: {letter}\n" for letter in layout.invalid]
    return layout


def _wanted(facts: NodeFacts, found: Options, names: frozenset[str] | None) -> bool:
    """Whether -n, -d, -r and -t leave the node in."""
    silent = bool(facts.state & node_states.FLAGS["NOT_RESPONDING"])
    if (names is not None and facts.record.name not in names) or (found.dead and not silent) \
            or (found.responding and silent):
        return False
    if found.states is None:
        return True
    matched = (node_states.matches(state, facts.state, facts.record.cpus_alloc) != negated
               for negated, state in found.states)
    return bool(found.states) and (all(matched) if found.all_of_states else any(matched))


def _rows(found: Options, layout: ListLayout[Row], session: Session) -> list[Row]:
    views = session.views
    names = None if found.nodes is None else frozenset(found.nodes)
    nodes = {}
    for name, record in views.nodes.items():
        if record.base_state == "FUTURE" and not found.future:
            continue
        facts = node_facts(record, views.conf)
        if _wanted(facts, found, names):
            nodes[name] = facts
    partitions = node_view.visible_partitions(session, found.all)
    if found.partitions is not None:
        partitions = [partition for partition in partitions if partition.name in found.partitions]
    fields = frozenset(name.lower() for name in layout.names())
    rows = gather(partitions, nodes, Grouping(fields, found.by_node, found.exact, found.reasons))
    sort_rows(rows, found.sort if found.sort is not None else "N" if found.by_node else "#P,-t")
    return rows


def _fitted(layout: ListLayout[Row], rows: Sequence[Row], found: Options) -> ListLayout[Row]:
    """Partition and node columns of the default formats are as wide as their data, at least 9."""
    if not found.sizes_follow_data:
        return layout
    names = [row.partition.name + ("*" if row.partition.default else "") for row in rows if row.partition]
    partition_width = max([9, *(byte_length(name) for name in names)])
    widths = {"Partition": partition_width, "PartitionName": partition_width}
    if "NodeList" in found.sizes_follow_data:
        widths["NodeList"] = widths["NodeHost"] = max([9, *(byte_length(row.names()) for row in rows)])
    return layout.resized(widths)


def _report(found: Options, layout: ListLayout[Row], session: Session, env: Mapping[str, str]) -> str:
    text = ""
    if not found.no_header and (found.iterate_s or found.verbose or found.long):
        text += date_line(env, session.now())
    if found.clusters is not None and not found.no_header:
        text += f"CLUSTER: {session.views.conf.cluster_name}\n"
    if found.reservations:
        return text + "No reservations in the system\n"
    rows = _rows(found, layout, session)
    if found.clusters is not None:
        for row in rows:
            row.cluster = session.views.conf.cluster_name
    fitted = _fitted(layout, rows, found)
    if any(column.width < 0 for column in fitted.columns):                      # such a column shows nothing
        fitted = ListLayout([ListColumn(None, 0, False, column.suffix) if column.width < 0 else column
                             for column in fitted.columns], fitted.invalid)
    return text + ("" if found.no_header else fitted.header()) + fitted.rows(rows)


@command
async def run(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
    """sinfo."""
    show_time, warning = TimeTexts(NAME, env, session.now()), ""
    table = sinfo_fields.FieldTable(session.views.conf, show_time)
    found = read_options(argv, env, table)
    if found.clusters is not None:
        warning += check_clusters(NAME, found.clusters, session.views.conf.cluster_name,
                                  federation=found.federation)
    layout = compile_format(found, table)
    stderr = warning + "".join(found.errors)
    options_text = sinfo_help.options_text(found, layout.names()) if found.verbose else ""
    if not found.iterate_s:
        text = _report(found, layout, session, env)
        return Reply(options_text + text, stderr + show_time.warning)
    await session.write_stderr(stderr)
    await session.write_stdout(options_text)
    while True:
        await session.write_stdout(_report(found, layout, session, env) + "\n")
        await session.sleep(found.iterate_s)
