"""One controller process: from options to a served socket, and back to nothing.

``serve`` runs it in this process; ``daemonize`` in a detached child, returning once commands can be called. Everything
that can go wrong before is one line for the administrator (``StartError``).
"""
from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import pwd
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from slurmbridge.accounting.database import StateLock
from slurmbridge.accounting.errors import LedgerError, LedgerInUse
from slurmbridge.accounting.ledger import Ledger
from slurmbridge.accounting.queries import Queries
from slurmbridge.api import admin_commands
from slurmbridge.api.https import CertificateError
from slurmbridge.api.identity import Identities
from slurmbridge.api.options import UNWRITTEN, Options, StartError, remember_options
from slurmbridge.api.outside import Outside
from slurmbridge.api.reload import Refused
from slurmbridge.api.server import CommandServer, take_socket_path
from slurmbridge.cluster.port import Engine
from slurmbridge.controller.config import Config, ConfigError, read_config
from slurmbridge.controller.default_conf import cluster_conf_text, default_conf_text
from slurmbridge.controller.inventory import add_found_nodes, make_nodes
from slurmbridge.controller.service import Controller
from slurmbridge.health.policy import Policy
from slurmbridge.slurm.conf import ConfError, read_conf
from slurmbridge.slurm.settings import SlurmConf

log = logging.getLogger("slurmbridge")
LAST_WORDS_S = 0.1
SWITCH_S = 0.001
"""A thread that prints a long table hands the interpreter on after this time, so that submissions need not wait."""


class LedgerUnusable(StartError):
    """Its ledger cannot be opened or read, and no other controller is the cause."""


def make_clock(epoch: float | None) -> Callable[[], float]:
    if epoch is None:
        return time.time
    return lambda: epoch


def load_conf(options: Options) -> SlurmConf:
    """The site's slurm.conf, or the one written into the state at its first start. Raises StartError."""
    path = options.slurm_conf
    try:
        if path is None:
            path = options.state / "slurm.conf"
            if not path.exists():
                text = cluster_conf_text() if options.engine == "kubernetes" else default_conf_text()
                path.write_text(text, encoding="utf-8")
        conf = read_conf(str(path))
    except ConfError as error:
        raise StartError(str(error)) from None
    except OSError as error:
        raise StartError(f"{error.filename or path}: {error.strerror}") from None
    if not conf.nodes and options.engine != "kubernetes":
        raise StartError(f"{path}: no NodeName line")
    if not conf.partitions:
        raise StartError(f"{path}: no PartitionName line")
    return conf


def load_config(options: Options) -> Config:
    """Raises StartError."""
    try:
        return read_config(str(options.config) if options.config else None)
    except ConfigError as error:
        raise StartError(str(error)) from None


async def make_engine(options: Options, conf: SlurmConf, clock: Callable[[], float], url: str = "", ca: str = "",
                      ) -> Engine:
    """``conf`` gets the nodes that the engine knows and the file does not. ``url`` and ``ca`` (PEM): how jobs in pods
    reach this controller. Raises StartError."""
    if options.engine == "kubernetes":
        return await _kubernetes(options, conf, clock, url, ca)
    nodes = list(make_nodes(conf, clock()).values())
    if options.engine == "simulated":
        from slurmbridge.cluster.simulated.engine import SimulatedEngine
        return SimulatedEngine(nodes, options.state, clock=clock)
    from slurmbridge.cluster.local.engine import LocalEngine
    return LocalEngine(nodes, options.state, controller_url=options.address)


async def _kubernetes(options: Options, conf: SlurmConf, clock: Callable[[], float], url: str, ca: str) -> Engine:
    from slurmbridge.cluster.kubernetes.api import ApiError
    from slurmbridge.cluster.kubernetes.credentials import CredentialError
    from slurmbridge.cluster.kubernetes.engine import KubernetesEngine
    try:
        settings = load_config(options).kubernetes
        engine = KubernetesEngine(settings, conf.cluster_name, kill_wait_s=conf.kill_wait_s, clock=clock,
                                  controller_url=url, controller_ca=ca, state=options.state)
        await engine.open()
    except (CredentialError, LookupError) as error:
        raise StartError(str(error)) from None
    except ApiError as error:
        raise StartError(f"Kubernetes: {error}") from None
    conf.found_nodes = engine.node_lines()
    add_found_nodes(conf)
    return engine


def _health(options: Options, conf: SlurmConf) -> Policy:
    """Raises StartError."""
    try:
        settings = read_config(str(options.config) if options.config else None).health
    except ConfigError as error:
        raise StartError(str(error)) from None
    return settings.policy(conf.values)


def prepare_state(options: Options) -> None:
    """Raises StartError."""
    try:
        options.state.mkdir(parents=True, exist_ok=True, mode=0o755)
        owner = options.state.stat().st_uid
        if owner != os.geteuid():
            raise StartError(f"{options.state}: belongs to {_user_name(owner)}, not to {_user_name(os.geteuid())}")
        if len(os.fsencode(str(options.socket_path))) > 100:
            raise StartError(f"{options.socket_path}: too long for a unix socket, choose another --state")
        take_socket_path(str(options.socket_path))
    except OSError as error:
        raise StartError(f"{error.filename or options.state}: {error.strerror}") from None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


async def serve(options: Options, ready: Callable[[str], None], *, end_runs_only: bool = False) -> None:
    """Until told to stop. ``ready`` is called with the address. Raises StartError."""
    prepare_state(options)
    outside = Outside(load_config(options), options.state, options.config)
    try:
        if not end_runs_only:
            await outside.watch_probes()
            await outside.lead()
        await _lead(options, outside, ready, end_runs_only=end_runs_only)
    except (CertificateError, Refused, OSError, RuntimeError) as error:
        raise StartError(" ".join(str(error).split())) from None
    finally:
        await outside.close()


async def _lead(options: Options, outside: Outside, ready: Callable[[str], None], *, end_runs_only: bool) -> None:
    """Raises StartError, CertificateError, Refused or OSError."""
    clock = make_clock(options.clock_epoch)
    database = options.database or str(options.state / "ledger.db")
    lock = str(options.state / "ledger.lock")
    unwritten = options.state / UNWRITTEN
    try:
        # its lock first: nothing else is touched while another one serves
        ledger = Ledger.open(database, lock, take_over=outside.lease is not None)
        unwritten.unlink(missing_ok=True)
    except LedgerError as error:
        raise _not_started(error) from None
    try:
        conf = load_conf(options)
        remember_options(options)
        queries = Queries(database)
        engine = await make_engine(options, conf, clock, *await outside.way_here())
        controller = Controller(conf, engine, ledger, clock, queries, options.address,
                                _health(options, conf))
        await controller.start()
    except (StartError, LedgerError, OSError, ValueError, RuntimeError) as error:
        ledger.close()
        raise _not_started(error) from None
    if end_runs_only:
        await controller.close(end_runs=True)
        _remember_unwritten(ledger, unwritten)
        return
    server = CommandServer(
        controller.views, controller.acts, Identities({conf.slurm_uid, os.getuid()}), clock,
        extra={"slurmbridge": admin_commands.run})
    try:
        server.preload()
        await outside.open(controller, server, clock)
        await server.listen(str(options.socket_path))
        options.pid_path.write_text(f"{os.getpid()}\n", encoding="ascii")
    except OSError as error:
        await controller.close()
        raise StartError(f"{error.filename or options.socket_path}: {error.strerror}") from None
    except (CertificateError, Refused, RuntimeError):
        await controller.close()
        raise
    loop = asyncio.get_running_loop()
    terminated = []
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (terminated.append(1), controller.request_stop()))
    tune()
    log.info("serving %s", options.address)
    ready(options.address)
    await controller.stopped.wait()
    await asyncio.sleep(LAST_WORDS_S)         # replies that are under way, refusals of a failed ledger among them
    await server.close()
    with contextlib.suppress(OSError):
        options.pid_path.unlink()
    failure = controller.failure
    await controller.close(end_runs=failure is None and not terminated)
    queries.close()
    _remember_unwritten(ledger, unwritten)
    if failure is not None:
        raise StartError(" ".join(str(failure).split()))


def _remember_unwritten(ledger: Ledger, path: Path) -> None:
    """For ``slurmbridge down``, which waits for this process to end."""
    if ledger.unwritten:
        log.error("not in the ledger: %s", ledger.unwritten)
        with contextlib.suppress(OSError):
            path.write_text(ledger.unwritten, encoding="utf-8")


def _not_started(error: Exception) -> StartError:
    is_ledger = isinstance(error, LedgerError) and not isinstance(error, LedgerInUse)
    return (LedgerUnusable if is_ledger else StartError)(" ".join(str(error).split()))


async def end_unrecorded(options: Options) -> bool:
    """Ends what a killed controller left running on this machine without the ledger, which cannot be used.

    False: what this engine runs is elsewhere, where another controller may look after it. Raises StartError.
    """
    if options.engine == "kubernetes":
        return False
    try:
        lock = StateLock(str(options.state / "ledger.lock"))
    except LedgerError as error:
        raise StartError(str(error)) from None
    try:
        engine = await make_engine(options, load_conf(options), make_clock(options.clock_epoch))
        await engine.recover(())               # no run is wanted
        await engine.shutdown()
    except (OSError, ValueError, RuntimeError) as error:
        raise StartError(" ".join(str(error).split())) from None
    finally:
        lock.release()
    return True


def tune() -> None:
    """Long-lived objects out of the collector's way, short turns of threads, as many connections as the system
    allows."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(SWITCH_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run_foreground(options: Options) -> None:
    """Raises StartError."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(serve(options, lambda address: print(address, flush=True)))


def daemonize(options: Options) -> str:
    """Starts the controller detached; its address once it serves. Raises StartError with its reason."""
    prepare_state(options)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        if os.fork():
            os._exit(0)
        _detached(options, writing)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode("utf-8", "replace").strip()
    if answer.startswith("ready "):
        return answer.removeprefix("ready ")
    raise StartError(answer.removeprefix("error ") or f"the controller ended at its start, see {options.log_path}")


def _detached(options: Options, pipe: int) -> None:
    """The daemon's process. Never returns."""
    def say(text: str) -> None:
        nonlocal pipe
        if pipe >= 0:
            os.write(pipe, text.encode("utf-8", "replace"))
            os.close(pipe)
            pipe = -1

    code = 1
    try:
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(options.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        logging.basicConfig(level=logging.INFO, stream=sys.stderr,
                            format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        asyncio.run(serve(options, lambda address: say(f"ready {address}")))
        code = 0
    except StartError as error:
        log.critical("%s", error)
        say(f"error {error}")
    except OSError as error:
        say(f"error {error.filename or ''}: {error.strerror}")
    except BaseException as error:
        log.exception("controller")
        say(f"error {type(error).__name__}: {' '.join(str(error).split())}")
    finally:
        os._exit(code)
