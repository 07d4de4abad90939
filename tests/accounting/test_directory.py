"""sacctmgr's rules for accounts, users, associations and QOS, and dumps that load back to the same."""
from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accounting.stage import Stage

from slurmbridge.accounting.directory import apply_operations
from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.operations import AddChange, SaveAssociation, SaveQos
from slurmbridge.commands import sacctmgr
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.associations import Tree
from slurmbridge.views.records import FAIRSHARE_PARENT, AssociationData

DATA = Path(__file__).parents[1] / "data"
GRES = ("gres/gpu", "gres/gpu:a100", "gres/gpu:v100")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    opened = Stage(tmp_path / "ledger.db", GRES)
    opened.files["/lab"] = (DATA / "sacctmgr_dump.cfg").read_bytes()
    yield opened
    opened.close()


def _do(stage: Stage, *words: str) -> str:
    reply = stage.call(sacctmgr.run, ["-i", *words])
    assert reply.exit_code == 0, reply
    return reply.stdout


def _dump(stage: Stage) -> str:
    _do(stage, "dump", "lab", "file=/out")
    return stage.files["/out"].decode()


def test_the_content_of_a_new_ledger(stage: Stage) -> None:
    data = stage.accounting
    assert [(r.id, r.account, r.user, r.lft, r.rgt) for r in data.associations.values()] == [
        (1, "root", "", 1, 4), (2, "root", "root", 2, 3)]
    assert {name: qos.id for name, qos in data.qos.items()} == {"normal": 1}
    assert data.users["root"].admin_level == "Administrator"
    assert list(data.tres.items())[:4] == [("cpu", 1), ("mem", 2), ("energy", 3), ("node", 4)]
    assert [data.tres[name] for name in GRES] == [1001, 1002, 1003]


def test_a_dump_loads_back_to_itself(stage: Stage, tmp_path: Path) -> None:
    _do(stage, "load", "file=/lab", "clean")
    first = _dump(stage)
    again = Stage(tmp_path / "other.db", GRES)
    again.files["/first"] = first.encode()
    _do(again, "load", "file=/first", "clean")
    assert _dump(again) == first
    assert again.call(sacctmgr.run, ["-i", "load", "file=/first"]).stdout == "For cluster lab\n Nothing new added.\n"
    again.close()


def test_random_trees_load_back_to_themselves(stage: Stage, tmp_path: Path) -> None:
    chance = random.Random(11)
    accounts, users = ["root"], [f"u{number}" for number in range(12)]
    for name in ("fast", "slow"):
        _do(stage, "add", "qos", name, f"priority={chance.randrange(100)}", "MaxTRESPerUser=cpu=8", "GrpJobs=3")
    for number in range(12):
        _do(stage, "add", "account", f"a{number}", f"parent={chance.choice(accounts)}",
            f"fairshare={chance.choice(['parent', '1', '7'])}", *chance.sample(
                ["GrpTRES=cpu=10,mem=2G,gres/gpu=1", "MaxJobs=5", "MaxWall=1-0", "QOS=fast,normal", "Priority=9"], 2))
        accounts.append(f"a{number}")
    for user in users:
        for account in chance.sample(accounts[1:], 2):
            stage.call(sacctmgr.run, [
                "-i", "add", "user", user, f"account={account}", f"fairshare={chance.randrange(9)}",
                *chance.sample(["MaxSubmitJobs=4", "QOS+=slow"], 1)])
    stage.call(sacctmgr.run, ["-i", "delete", "account", "a3"])
    first = _dump(stage)
    again = Stage(tmp_path / "other.db", GRES)
    again.files["/first"] = first.encode()
    _do(again, "load", "file=/first", "clean")
    assert _dump(again) == first
    again.close()


def _data(*operations: dict[str, Any]) -> AssociationData:
    data = AssociationData("lab")
    apply_operations(data, [
        {"op": "add_qos", "name": "normal", "settings": {}}, {"op": "add_qos", "name": "high", "settings": {}},
        {"op": "add_account", "name": "root"},
        {"op": "add_association", "account": "root", "settings": {"qos": ["normal"]}},
        {"op": "add_account", "name": "phys"}, {"op": "add_association", "account": "phys", "parent": "root"},
        {"op": "add_account", "name": "astro"}, {"op": "add_association", "account": "astro", "parent": "phys"},
        {"op": "add_user", "name": "dana"}, {"op": "add_association", "account": "astro", "user": "dana"},
        *operations], 0.0)
    return data


def test_ids_grow_and_a_row_that_was_used_stays(stage: Stage) -> None:
    data = _data()
    number = Tree(data).find("astro", "dana").id  # type: ignore[union-attr]
    day = 200_000.0
    apply_operations(data, [{"op": "delete_association", "id": number}], day)
    assert data.associations[number].deleted, "older than a day: it may be in the reports"
    apply_operations(data, [{"op": "add_association", "account": "astro", "user": "dana"}], day)
    assert Tree(data).find("astro", "dana").id == number  # type: ignore[union-attr]
    apply_operations(data, [{"op": "add_association", "account": "phys", "user": "dana"}], day)
    young = Tree(data).find("phys", "dana").id  # type: ignore[union-attr]
    assert young == number + 1
    apply_operations(data, [{"op": "delete_association", "id": young}], day)
    assert young not in data.associations


def test_limits_and_qos_come_from_above(stage: Stage) -> None:
    data = _data({"op": "modify_association", "id": 2, "settings": {
        "max_jobs": 5, "grp_tres": {"cpu": 64}, "max_tres_per_job": {"cpu": 8}, "qos": ["normal", "high"],
        "priority": 9}})
    tree = Tree(data)
    user = tree.find("astro", "dana")
    assert user is not None
    limits = tree.limits(user)
    assert (limits.max_jobs, limits.max_tres_per_job) == (5, {"cpu": 8})
    assert limits.grp_tres == {}, "Grp limits hold where they are set"
    assert tree.qos(user) == ("normal", "high") and tree.priority(user) == 9
    less = {"qos": ["-high"], "max_jobs": 2}
    apply_operations(data, [{"op": "modify_association", "id": user.id, "settings": less}], 1.0)
    tree = Tree(data)
    user = tree.find("astro", "dana")
    assert user is not None
    assert tree.qos(user) == ("normal",) and tree.limits(user).max_jobs == 2
    apply_operations(data, [{"op": "modify_association", "id": user.id, "settings": {"max_jobs": None}}], 2.0)
    assert Tree(data).limits(data.associations[user.id]).max_jobs == 5


def test_the_tree_is_numbered_in_depth_first_order(stage: Stage) -> None:
    _do(stage, "load", "file=/lab", "clean")
    records = [record for record in stage.accounting.associations.values() if not record.deleted]
    tree = Tree(stage.accounting)
    ordered = list(tree.in_order())
    assert [record.lft for record in ordered] == sorted(record.lft for record in records)
    for record in records:
        parent = tree.parent(record)
        assert parent is None or parent.lft < record.lft < record.rgt < parent.rgt
    assert any(record.shares == FAIRSHARE_PARENT for record in records)


def test_all_or_nothing(stage: Stage) -> None:
    data = _data()
    generation = data.generation
    with pytest.raises(SlurmError):
        apply_operations(data, [{"op": "add_qos", "name": "new", "settings": {}},
                                {"op": "delete_account", "name": "none"}], 1.0)
    assert "new" not in data.qos and data.generation == generation


def test_only_what_changed_is_written(stage: Stage) -> None:
    data = _data()
    written = apply_operations(data, [{"op": "modify_qos", "name": "high", "settings": {"priority": 5}}], 1.0)
    assert [type(operation) for operation in written] == [AddChange, SaveQos]
    written = apply_operations(data, [{"op": "modify_association", "id": 4, "settings": {"shares": 3}}], 1.0)
    assert [operation.association.id for operation in written if isinstance(operation, SaveAssociation)] == [4]


def test_a_directory_survives_a_restart(stage: Stage, tmp_path: Path) -> None:
    _do(stage, "load", "file=/lab", "clean")
    before = stage.accounting
    stage.close()
    ledger = Ledger.open(f"{tmp_path}/ledger.db")
    after = ledger.load().accounting
    ledger.close()
    after.cluster, after.generation = before.cluster, before.generation
    assert after == before


def test_accounts_by_the_thousand(stage: Stage) -> None:
    """A big site's file: the work grows with the file, not with its square."""
    lines = ["Cluster - 'lab':Fairshare=1", "Parent - 'root'"]
    lines += [f"Account - 'a{number}':Fairshare={number % 9 + 1}" for number in range(200)]
    for number in range(200):
        lines += [f"Parent - 'a{number}'"] + [f"User - 'x{number}_{user}':Fairshare=1" for user in range(10)]
    stage.files["/big"] = "\n".join(lines).encode() + b"\n"
    _do(stage, "load", "file=/big", "clean")
    assert len(stage.accounting.associations) >= 2202
