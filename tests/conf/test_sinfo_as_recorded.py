"""sinfo over fabricated records prints what Slurm 25.11's sinfo printed of the same cluster."""
from __future__ import annotations

import pytest

from slurmbridge.commands import scontrol, sinfo
from tests.conf.talk import Recorded, recorded
from tests.conf.world import NOW_S, ROOT, USER, FakeSession, FakeViews, lab_views, run, sample

CALLS = recorded("sinfo_talk.txt")
FRESH = next(place for place, call in enumerate(CALLS) if call.argv[:1] == ("-M",))


def quiet_lab(*, restarted: bool) -> FakeViews:
    """One job on n1 and n2, g1 completing; n6 drained, or (after a restart) nobody but n1 has answered yet."""
    views = lab_views()
    for node in views.nodes.values():
        node.cpu_load, node.free_mem_mb, node.cpus_alloc, node.mem_alloc_mb = 0.22, 23066, 0, 0
        node.gres_alloc = {}
        node.flags.discard("PLANNED")
        if restarted and node.name != "n1":
            node.free_mem_mb, node.cpu_load = None, 0.0
            node.flags.add("NOT_RESPONDING")
            if node.name not in ("n2", "g1"):
                node.base_state = "UNKNOWN"
    views.nodes["n1"].cpus_alloc, views.nodes["n2"].cpus_alloc = 3, 1
    views.nodes["n1"].cpu_load = 0.33
    views.nodes["n2"].flags.add("NOT_RESPONDING")
    views.nodes["g1"].flags |= {"COMPLETING", "NOT_RESPONDING"}
    if not restarted:
        node = views.nodes["n6"]
        node.flags.add("DRAIN")
        node.reason, node.reason_user, node.reason_uid, node.reason_s = "a b", "root", 0, NOW_S + 33472
    return views


def in_any_order(text: str) -> list[str]:
    """sinfo's own threads, one a partition, decide the order of rows of equal sort keys."""
    return sorted(text.splitlines())


BIG = ("%n|%N|%R|%P|%a|%t|%T|%c|%C|%X|%Y|%Z|%z|%m|%e|%O|%d|%w|%f|%b|%G|%D|%A|%F|%l|%L|%s|%S|%r|%h|%p|%g|%u|%U|%E|%H|%i|"
       "%I|%M|%v|%V")
NAMED = ("NodeList:|,NodeHost:|,Partition:|,StateLong:|,CPUs:|,CPUsState:|,Memory:|,AllocMem:|,FreeMem:|,Gres:|,"
         "GresUsed:|,Features:|,Weight:|,Reason:|,CPUsLoad:")


@pytest.mark.parametrize(("name", "argv"), [
    ("default", ()), ("summary", ("-s",)), ("O", ("-N", "-O", NAMED)), ("Nel", ("-Nel",)),
    ("format", ("-N", f"--format={BIG}"))])
def test_samples(name: str, argv: tuple[str, ...]) -> None:
    text = run(sinfo.run, FakeSession(lab_views()), *argv).stdout
    if name in ("Nel", "format"):
        assert in_any_order(text) == in_any_order(sample(f"sinfo_{name}.txt"))
    else:
        assert text == sample(f"sinfo_{name}.txt")


@pytest.mark.parametrize(("name", "value", "same"), [
    ("SINFO_ALL", "1", ("-a",)), ("SINFO_FORMAT", "%N %D", ("-o", "%N %D")), ("SINFO_PARTITION", "gpu", ("-p", "gpu")),
    ("SINFO_SORT", "-N", ("-S", "-N"))])
def test_environment(name: str, value: str, same: tuple[str, ...]) -> None:
    views = lab_views()
    views.partitions["debug"].hidden = True
    session = FakeSession(views, identity=USER)
    assert run(sinfo.run, session, env={name: value}).stdout == run(sinfo.run, session, *same).stdout
    assert run(sinfo.run, session, env={name: value}).stdout != run(sinfo.run, session).stdout
    assert run(sinfo.run, session, "-o", "%P", env={name: value}).stdout.startswith("PARTITION")


def test_repeats_until_the_caller_leaves() -> None:
    session = FakeSession(lab_views())
    with pytest.raises(ConnectionError):
        run(sinfo.run, session, "-i", "1")
    assert session.out.splitlines()[1].startswith("PARTITION AVAIL")


def test_hidden_and_closed_partitions_show_only_when_asked_for() -> None:
    views = lab_views()
    views.partitions["debug"].hidden = True
    views.partitions["long"].allow_groups = ("nosuchgroup",)
    for identity, argv, shown in ((USER, (), ["batch*", "gpu", "physonly", "all"]),
                                  (USER, ("-a",), ["batch*", "debug", "gpu", "long", "physonly", "all"]),
                                  (USER, ("-p", "debug"), ["debug"])):
        text = run(sinfo.run, FakeSession(views, identity=identity), "-h", "-o", "%P", *argv).stdout
        assert sorted(text.split()) == sorted(shown), (argv, text)


@pytest.mark.parametrize(("base", "flags", "alloc", "short", "long", "complete"), [
    ("IDLE", "", 0, "idle", "idle", "IDLE"), ("IDLE", "", 4, "mix", "mixed", "MIXED"),
    ("IDLE", "", 64, "alloc", "allocated", "ALLOCATED"), ("IDLE", "DRAIN", 0, "drain", "drained", "IDLE+DRAIN"),
    ("IDLE", "DRAIN", 64, "drng", "draining", "ALLOCATED+DRAIN"), ("IDLE", "DRAIN NOT_RESPONDING", 0, "drain*",
                                                                "drained*", "IDLE+DRAIN+NOT_RESPONDING"),
    ("DOWN", "NOT_RESPONDING", 0, "down*", "down*", "DOWN+NOT_RESPONDING"), ("DOWN", "", 0, "down", "down", "DOWN"),
    ("IDLE", "COMPLETING", 0, "comp", "completing", "IDLE+COMPLETING"),
    ("IDLE", "COMPLETING", 64, "alloc+", "allocated+", "ALLOCATED+COMPLETING"),
    ("IDLE", "PLANNED", 0, "plnd", "planned", "IDLE+PLANNED"),
    ("IDLE", "PLANNED", 4, "mix-", "mixed-", "MIXED+PLANNED"),
    ("IDLE", "MAINT", 0, "maint", "maint", "IDLE+MAINTENANCE"), ("IDLE", "FAIL", 4, "failg", "failing", "MIXED+FAIL"),
    ("FUTURE", "", 0, "futr", "future", "FUTURE"), ("UNKNOWN", "", 0, "unk", "unknown", "UNKNOWN"),
    ("IDLE", "RESERVED", 0, "resv", "reserved", "IDLE+RESERVED"),
    ("IDLE", "POWERED_DOWN", 0, "idle~", "idle~", "IDLE+POWERED_DOWN")])
def test_states(base: str, flags: str, alloc: int, short: str, long: str, complete: str) -> None:
    views = lab_views()
    node = views.nodes["n5"]
    node.base_state, node.flags, node.cpus_alloc = base, set(flags.split()), alloc
    session = FakeSession(views)
    argv = ("-F",) if base == "FUTURE" else ()
    assert run(sinfo.run, session, *argv, "-hN", "-p", "long", "-n", "n5", "-o", "%t %T").stdout == f"{short} {long}\n"
    assert f"State={complete} " in run(scontrol.run, session, "-F", "show", "node", "n5").stdout


@pytest.mark.parametrize(("asked", "nodes"), [
    ("idle", "n[1,3]"), ("alloc", "g[1-2],n[2,4-6]"), ("mix", "g[1-2],n5"), ("drain", "n[1-2]"), ("drained", "n1"),
    ("drng", "n2"),
    ("idle,mix", "g[1-2],n[1,3,5]"), ("planned", "g2"), ("down", ""), ("all", "g[1-2],n[1-6]"), ("no_respond", "n3"),
    ("draining&no_respond", ""), ("mixed&planned", "g2")])
def test_state_filter(asked: str, nodes: str) -> None:
    views = lab_views()
    views.nodes["n1"].flags, views.nodes["n1"].cpus_alloc = {"DRAIN"}, 0
    views.nodes["n2"].flags = {"DRAIN"}
    views.nodes["n3"].flags, views.nodes["n3"].cpus_alloc = {"NOT_RESPONDING"}, 0
    views.nodes["n5"].cpus_alloc = 1
    text = run(sinfo.run, FakeSession(views), "-h", "-p", "all", "-o", "%N", "-t", asked).stdout
    assert text.strip() == nodes


@pytest.mark.parametrize(("place", "call"), list(enumerate(CALLS)), ids=[str(call) for call in CALLS])
def test_answers(place: int, call: Recorded) -> None:
    session = FakeSession(quiet_lab(restarted=place >= FRESH), call.argv, identity=USER if call.user else ROOT)
    session.clock = NOW_S + 33472 + 2 * (place >= FRESH)
    reply = run(sinfo.run, session, *call.argv)
    if call.argv[-1:] in (("%all",), ("all",)):      # ours have the version of their controller from the start
        assert reply.stdout.replace("|25.11.7|", "|N/A|") == call.stdout.replace("|25.11.7|", "|N/A|")
    elif call.argv[0:1] == ("-o",) and "%.5f" in call.argv[1]:
        assert in_any_order(reply.stdout) == in_any_order(call.stdout)
    else:
        assert reply.stdout == call.stdout
    assert (reply.stderr, reply.exit_code) == (call.stderr, call.exit_code)
