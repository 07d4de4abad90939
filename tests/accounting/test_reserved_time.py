"""Jobs in a reservation of this controller's: sacct names it, sreport counts the time."""
from __future__ import annotations

import time
from collections.abc import Callable

from sites import Site


def test_a_job_in_a_reservation(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.ok("scontrol", "create", "reservation", "ReservationName=mine", "Users=root", "Nodes=n1", "StartTime=now",
            "Duration=60")
    outside = site.submit("--wrap", "sleep 100")
    job = site.submit("--reservation=mine", "-n4", "--wrap", "sleep 100")
    site.wait_for(job, "RUNNING")
    site.wait_for(outside, "RUNNING")
    fields = ("sacct", "-nPX", "-o", "reservationid,reqreservation")
    number = site.ok("sacctmgr", "-nP", "show", "reservation", "start=now-1hour", "end=now+2hours", "format=id").strip()
    assert number
    assert site.ok(*fields, "-j", str(job)).strip() == f"{number}|mine"
    assert site.ok(*fields, "-j", str(outside)).strip() == "|"
    time.sleep(2.1)                           # usage is in whole seconds
    site.ok("scancel", str(job))
    site.wait_for(job, "CANCELLED")
    site.ok("scontrol", "delete", "ReservationName=mine")
    assert site.ok(*fields, "-j", str(job)).strip() == f"{number}|mine"
    shown = site.ok("sreport", "-nP", "-tseconds", "reservation", "Utilization", "start=now-1hour", "end=now",
                    "format=name,tresname,count").splitlines()
    assert shown and all(line.startswith("mine|cpu|") for line in shown)
