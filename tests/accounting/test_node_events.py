"""What sacctmgr's events say of this controller's nodes, also over a restart, and what it means for usage."""
from __future__ import annotations

from collections.abc import Callable

from sites import Site


def test_a_node_is_drained_and_returns(make_site: Callable[..., Site]) -> None:
    site = make_site()
    events = ("sacctmgr", "-nP", "show", "event", "event=node", "all_time", "format=nodename,state,reason,user")
    site.ok("scontrol", "update", "nodename=n1", "state=drain", "reason=disk")
    site.ok("scontrol", "update", "nodename=n2", "state=down", "reason=psu")
    wanted = ["n1|DRAIN|disk|root(0)", "n2|DOWN|psu|root(0)"]
    assert site.ok(*events).splitlines() == wanted
    site.ok("scontrol", "update", "nodename=n1", "comment=looked at")
    site.down()
    site.up()
    site.ok("scontrol", "update", "nodename=n1", "state=resume")
    assert site.ok(*events).splitlines() == wanted
    ended = site.ok("sacctmgr", "-nP", "show", "event", "nodes=n1", "all_time", "format=timeend").split()
    assert ended and "Unknown" not in ended
