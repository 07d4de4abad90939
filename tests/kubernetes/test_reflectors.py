"""A reflector against an API server that does what real ones do at their worst; and what Api makes of refusals."""
from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from slurmbridge_schedulers.gang import GangBinder

from slurmbridge.cluster.kubernetes.api import Api, ApiError
from slurmbridge.cluster.kubernetes.objects import Node
from slurmbridge.cluster.kubernetes.plugin import BindError, PodPlace
from slurmbridge.cluster.kubernetes.reflector import Reflector


def node(name: str, version: str, uid: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid or f"u-{name}", "resourceVersion": version}}


class Server:
    """Answers lists with ``pages`` and watches with ``watches``, each once and in turn; then watches stay silent."""

    def __init__(self, pages: list[Any], watches: list[list[Any]]) -> None:
        self.pages, self.watches = list(pages), list(watches)
        self.asked: list[tuple[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        if "watch" not in query:
            self.asked.append(("list", query.get("continue", "")))
            page = self.pages.pop(0)
            return page if isinstance(page, web.Response) else web.json_response(page)
        self.asked.append(("watch", query["resourceVersion"]))
        response = web.StreamResponse()
        await response.prepare(request)
        if not self.watches:
            await asyncio.sleep(60)
        for event in self.watches.pop(0):
            await response.write(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
        return response


def page(version: str, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version, "continue": more}, "items": items}


class Access:
    def __init__(self, port: int) -> None:
        self.host = f"http://127.0.0.1:{port}"

    def headers(self) -> dict[str, str]:
        return {}

    def ssl_context(self) -> bool:
        return True


def with_server(handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
                work: Callable[[Api], Awaitable[None]]) -> None:
    async def run() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        api = Api(Access(runner.addresses[0][1]), sleep=lambda s: asyncio.sleep(0))  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(20):
                await work(api)
        finally:
            await api.close()
            await runner.cleanup()
    asyncio.run(run())


def follow(server: Server, until: Callable[[list[str]], bool]) -> list[str]:
    """What a reflector tells, as ``+name``, ``=name``, ``-name``."""
    told: list[str] = []

    async def work(api: Api) -> None:
        enough = asyncio.Event()

        def change(before: Node | None, after: Node | None) -> None:
            mark = "+" if before is None else "-" if after is None else "="
            told.append(mark + (after or before).metadata.name)  # type: ignore[union-attr]
            if until(told):
                enough.set()
        reflector = Reflector(api, "/api/v1/nodes", Node, change, sleep=lambda s: asyncio.sleep(0))
        task = asyncio.create_task(reflector.run())
        await enough.wait()
        task.cancel()
    with_server(server.answer, work)
    return told


def test_a_list_in_pages_and_a_watch_from_its_end() -> None:
    server = Server([page("7", node("a", "1"), more="tok"), page("7", node("b", "2"))],
                    [[{"type": "MODIFIED", "object": node("a", "8")}, {"type": "ADDED", "object": node("c", "9")},
                      {"type": "DELETED", "object": node("b", "10")}]])
    assert follow(server, lambda told: "-b" in told) == ["+a", "+b", "=a", "+c", "-b"]
    assert server.asked[:3] == [("list", ""), ("list", "tok"), ("watch", "7")]


def test_a_watch_that_ends_goes_on_from_the_last_bookmark() -> None:
    server = Server([page("7")], [[{"type": "BOOKMARK", "object": node("", "50")}], [],
                                  [{"type": "ADDED", "object": node("a", "51")}]])
    assert follow(server, lambda told: "+a" in told) == ["+a"]
    assert [version for what, version in server.asked if what == "watch"] [:3] == ["7", "50", "50"]


@pytest.mark.parametrize("gone", [
    [{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}]])
def test_a_forgotten_version_means_a_new_list_and_only_differences_are_told(gone: list[Any]) -> None:
    server = Server([page("7", node("a", "1"), node("b", "2")), page("90", node("b", "2"), node("c", "80"))],
                    [gone, [{"type": "ADDED", "object": node("d", "91")}]])
    assert follow(server, lambda told: "+d" in told) == ["+a", "+b", "-a", "+c", "+d"]


def test_a_thing_of_the_same_name_is_another_thing() -> None:
    server = Server([page("7", node("a", "1", "old")), page("9", node("a", "8", "new"))],
                    [[{"type": "ERROR", "object": {"code": 410}}]])
    assert follow(server, lambda told: told.count("+a") == 2) == ["+a", "-a", "+a"]


def test_half_a_line_is_read_on() -> None:
    line = json.dumps({"type": "ADDED", "object": node("a", "8")}).encode() + b"\n"
    server = Server([page("7")], [[line[:20], line[20:]]])
    assert follow(server, lambda told: bool(told)) == ["+a"]


def test_a_write_whose_answer_was_lost_is_done_once() -> None:
    made: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else {}
        if request.method == "GET":
            return web.json_response({"metadata": {"name": "x", "labels": {"run": made[0]}}})
        if made:
            return web.json_response({"code": 409, "reason": "AlreadyExists", "message": "x exists"}, status=409)
        made.append(body["metadata"]["labels"]["run"])
        request.transport.close()  # type: ignore[union-attr]
        return web.Response()

    async def work(api: Api) -> None:
        body = {"metadata": {"name": "x", "labels": {"run": "1"}}}
        found = await api.create("/things", body, lambda text: b'"1"' in text)
        assert json.loads(found)["metadata"]["labels"] == {"run": "1"}
        with pytest.raises(ApiError) as refused:
            await api.create("/things", body, lambda text: b'"2"' in text)
        assert refused.value.reason == "AlreadyExists"
    with_server(handler, work)


def test_a_pause_that_the_server_asks_for_is_kept() -> None:
    answers = [web.json_response({"code": 429, "message": "slow"}, status=429, headers={"Retry-After": "7"}),
               web.json_response({"code": 500, "message": "oops"}, status=500), web.json_response({"ok": True})]
    pauses: list[float] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        return answers.pop(0)

    async def work(api: Api) -> None:
        api._on_pause = pauses.append
        assert json.loads(await api.request("GET", "/x")) == {"ok": True}
    with_server(handler, work)
    assert pauses == [7.0]


def test_an_object_that_a_quota_counted_at_the_same_time_is_made_all_the_same() -> None:
    answers = [web.json_response({"code": 409, "reason": "Conflict", "message": "the quota was modified"}, status=409),
               web.json_response({"metadata": {"name": "x"}}, status=201)]

    async def handler(request: web.Request) -> web.StreamResponse:
        return answers.pop(0)

    async def work(api: Api) -> None:
        assert b'"x"' in await api.create("/things", {"metadata": {"name": "x"}}, lambda text: False)
    with_server(handler, work)


@pytest.mark.parametrize(("seen", "said"), [
    ([{"uid": "u", "node": ""}, {"uid": "u", "node": "n1"}], ""),          # another write of it, and then ours
    ([{"uid": "u", "node": "n1"}], ""), ([{"uid": "u", "node": "n2"}], "taken"), ([{"uid": "v", "node": ""}], "taken"),
    ([{"uid": "u", "node": "", "deleted": "2026-08-01T00:00:00Z"}], "taken")])
def test_a_binding_that_conflicts_is_done_or_repeated_or_impossible(seen: list[dict[str, str]], said: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return web.json_response({"code": 409, "reason": "Conflict", "message": "taken"}, status=409)
        one = seen.pop(0)
        return web.json_response({"metadata": {"name": "p", "uid": one["uid"], "deletionTimestamp": one.get("deleted")},
                                  "spec": {"nodeName": one["node"]}})

    async def work(api: Api) -> None:
        try:
            await GangBinder(api, "slurm").bind([PodPlace("p", "u", "n1")])
        except BindError as error:
            assert said and said in str(error)
        else:
            assert not said
    with_server(handler, work)
    assert not seen


def test_a_list_whose_next_page_is_forgotten_begins_again_after_a_pause() -> None:
    pauses: list[float] = []
    gone = web.json_response({"code": 410, "reason": "Expired", "message": "too old"}, status=410)
    server = Server([page("7", node("a", "1"), more="tok"), gone, page("9", node("b", "8"))], [])

    async def work(api: Api) -> None:
        done = asyncio.Event()

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
        reflector = Reflector(api, "/api/v1/nodes", Node, lambda before, after: done.set(), sleep=sleep)
        task = asyncio.create_task(reflector.run())
        await done.wait()
        task.cancel()
        assert [key[1] for key in reflector.items] == ["b"]
    with_server(server.answer, work)
    assert [asked for asked in server.asked if asked[0] == "list"] == [("list", ""), ("list", "tok"), ("list", "")]
    assert len(pauses) == 1 and pauses[0] > 0


def test_watches_that_worked_before_they_were_cut_are_begun_again_at_once() -> None:
    pauses: list[float] = []
    cut = {"type": "ERROR", "object": {"code": 500, "reason": "InternalError", "message": "cut"}}
    server = Server([page("7")], [[{"type": "ADDED", "object": node(f"n{one}", f"{one}")}, cut] for one in range(9)])

    async def work(api: Api) -> None:
        names: set[str] = set()
        done = asyncio.Event()

        def change(before: Node | None, after: Node | None) -> None:
            names.add(after.metadata.name if after is not None else "")
            if len(names) == 9:
                done.set()

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
        task = asyncio.create_task(Reflector(api, "/api/v1/nodes", Node, change, sleep=sleep).run())
        await done.wait()
        task.cancel()
    with_server(server.answer, work)
    assert len(pauses) >= 8 and max(pauses) <= 0.2


def test_a_refusal_is_not_tried_again() -> None:
    asked = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.json_response({"code": 403, "reason": "Forbidden", "message": "no\n way"}, status=403)

    async def work(api: Api) -> None:
        with pytest.raises(ApiError, match=r"^no way$") as refused:
            await api.request("POST", "/x", {})
        assert not refused.value.is_transient
    with_server(handler, work)
    assert asked == ["/x"]
