"""The administrator's command: ``slurmbridge up``, ``down``, ``status``, ``import``, ``translate``, ``lint``."""
from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from slurmbridge import __version__

if TYPE_CHECKING:
    from slurmbridge.api.options import Options

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
                  help="Slurm's commands without slurmctld: bring slurm.conf, accounts and scripts.")
importing = typer.Typer(no_args_is_help=True, help="Take over what a Slurm site has.")
app.add_typer(importing, name="import")
reporting = typer.Typer(no_args_is_help=True, help="What was used, in forms that people load elsewhere.")
app.add_typer(reporting, name="report")

StateOption = Annotated[Path | None, typer.Option("--state", help="The controller's directory.")]
DOWN_TIMEOUT_S = 60.0


def fail(text: str) -> NoReturn:
    """One line on standard error, exit code 1."""
    print(f"slurmbridge: {text}", file=sys.stderr)
    raise typer.Exit(1)


def _state(given: Path | None) -> Path:
    from slurmbridge.api.options import default_state
    return (given or default_state()).absolute()


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"slurmbridge {__version__}")
        raise typer.Exit


@app.command()
def up(state: StateOption = None,
       slurm_conf: Annotated[Path | None, typer.Option("--slurm-conf", help="The site's slurm.conf.")] = None,
       config: Annotated[str | None, typer.Option("--config", help="slurmbridge.yaml.")] = None,
       engine: Annotated[str | None, typer.Option("--engine", help="local | simulated | kubernetes")] = None,
       foreground: Annotated[bool, typer.Option("--foreground", help="Do not detach.")] = False,
       clock: Annotated[float | None, typer.Option("--clock", help="What time it shall stay (epoch seconds).")] = None,
       ) -> None:
    """Starts a controller and prints its address once it serves."""
    from slurmbridge.api.daemon import daemonize, run_foreground
    from slurmbridge.api.options import Options, StartError
    from slurmbridge.controller.config import ConfigError, read_config
    try:
        settings = read_config(config)
    except ConfigError as error:
        fail(str(error))
    chosen = engine or settings.engine
    if chosen not in ("local", "simulated", "kubernetes"):
        fail(f"unknown engine {chosen!r} (local, simulated, kubernetes)")
    conf = slurm_conf or settings.slurm_conf
    options = Options(
        state=_state(state or settings.state), slurm_conf=conf.absolute() if conf else None, engine=chosen,
        database=settings.database or os.environ.get("SLURMBRIDGE_DATABASE"), socket=settings.socket,
        log=settings.log, clock_epoch=clock,
        config=Path(config).absolute() if config else None)
    try:
        if foreground:
            run_foreground(options)
        else:
            print(daemonize(options))
    except StartError as error:
        fail(str(error))


def _address(folder: Path) -> str:
    """Where the controller of this state serves, or served last."""
    from slurmbridge.api.options import Options, StartError, remembered_options
    try:
        return remembered_options(folder).address
    except StartError:
        return Options(folder).address


def _call(state: Path | None, *words: str) -> int:
    """A request to the controller of this state (None: SLURMBRIDGE_URL, else the default one)."""
    from slurmbridge.client import transport
    from slurmbridge.client.launcher import Lost, converse
    address = (state is None and os.environ.get("SLURMBRIDGE_URL")) or _address(_state(state))
    own = ("SLURMBRIDGE_URL", "SLURMBRIDGE_STEPD")
    env = [f"{name}={value}" for name, value in os.environ.items() if name not in own]
    try:
        return converse("slurmbridge", list(words), [*env, f"SLURMBRIDGE_URL={address}"])
    except transport.Unreachable:
        fail(f"no controller answers at {address}")
    except Lost:
        fail(f"the controller at {address} went away")


@app.command()
def status(state: StateOption = None) -> None:
    """Says what the running controller is doing."""
    raise typer.Exit(_call(state, "status"))


@app.command()
def down(state: StateOption = None) -> None:
    """Stops the controller and everything it started."""
    from slurmbridge.client import transport
    folder = _state(state)
    pid = _pid(folder)
    from slurmbridge.api.options import REMEMBERED, StartError, remembered_options
    if not (folder / REMEMBERED).exists():
        return                                # nothing was ever started here
    try:
        options = remembered_options(folder)
    except StartError as error:
        fail(str(error))
    sock = options.socket_path
    if not sock.exists():
        _end_leftovers(options)
        return
    try:
        stream, _ = transport.connect(f"unix://{sock}")
        stream.close()
    except transport.Unreachable:
        _end_leftovers(options)
        return
    with open(os.devnull, "wb") as null:
        saved = os.dup(1)
        os.dup2(null.fileno(), 1)
        try:
            code = _call(folder, "shutdown")
        finally:
            os.dup2(saved, 1)
    if code:
        raise typer.Exit(code)
    end = time.monotonic() + DOWN_TIMEOUT_S
    while time.monotonic() < end:
        if not sock.exists() and (pid is None or not _alive(pid)):
            _say_unwritten(folder)
            return
        time.sleep(0.02)
    fail(f"the controller (pid {pid}) has not ended after {DOWN_TIMEOUT_S:.0f} s")


def _pid(folder: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "slurmbridge.pid").read_text())
    return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _end_leftovers(options: Options) -> None:
    """A controller that was killed left its jobs running: they are ended as if it had been told to stop."""
    folder = options.state
    from slurmbridge.cluster.local.spool import spawner_lives
    if not (folder / "slurmbridge.pid").exists() and not spawner_lives(folder):
        return
    import asyncio

    from slurmbridge.api.daemon import LedgerUnusable, end_unrecorded, serve
    from slurmbridge.api.options import StartError
    try:
        asyncio.run(serve(options, lambda address: None, end_runs_only=True))
    except LedgerUnusable as error:
        try:
            is_ended = asyncio.run(end_unrecorded(options))
        except StartError as other:
            fail(str(other))
        if not is_ended:
            fail(str(error))
        _forget_pid(folder)
        fail(f"{error}; jobs that ran were ended, and the ledger does not say so yet")
    except StartError as error:
        fail(str(error))
    _forget_pid(folder)
    _say_unwritten(folder)


def _forget_pid(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / "slurmbridge.pid").unlink()


def _say_unwritten(folder: Path) -> None:
    """Ends with an error where the controller had to leave something out of the ledger."""
    from slurmbridge.api.options import UNWRITTEN
    with contextlib.suppress(OSError):
        text = (folder / UNWRITTEN).read_text(encoding="utf-8")
        (folder / UNWRITTEN).unlink()
        fail(f"everything was ended; the ledger could not be written, it lacks the end of {text}")


@app.command()
def logs(job: Annotated[str, typer.Argument(help="Its number, or ARRAY_TASK.")],
         follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the script ends.")] = False,
         state: StateOption = None) -> None:
    """What a batch script wrote whose output folder no volume has: from its pod, or as it was kept."""
    raise typer.Exit(_call(state, "logs", job, "follow" if follow else "all"))


@app.command()
def relay(socket: Annotated[Path, typer.Option("--socket", help="Where users' commands connect.")],
          url: Annotated[str, typer.Option("--url", help="The controller: https://HOST[:PORT].")],
          token: Annotated[Path, typer.Option("--token", help="File with the relay's own token.")],
          ca: Annotated[Path | None, typer.Option("--ca", help="What its certificate is checked by.")] = None) -> None:
    """Passes a login node's commands on to a controller elsewhere, with the uid that the kernel says; until SIGTERM."""
    import asyncio

    from slurmbridge.client.relay import RelayOptions
    from slurmbridge.client.relay import relay as run
    if not url.startswith("https://"):
        fail("--url must be https://…")
    try:
        asyncio.run(run(RelayOptions(socket, url, token, ca)))
    except OSError as error:
        fail(f"{error.filename or socket}: {error.strerror or error}")


@app.command()
def health(nodes: Annotated[list[str] | None, typer.Argument(metavar="[NODE]...", help="Which nodes.")] = None,
           undo: Annotated[bool, typer.Option("--undo", help="Lift what health has set on them (on all), until they "
                                                             "are said to be bad anew.")] = False,
           stage: Annotated[str | None, typer.Option("--stage", metavar="PARTITION=STAGE",
                                                     help="observe | drain-only | act")] = None,
           state: StateOption = None) -> None:
    """Says of nodes what is wrong, who said it, since when, and what will happen next."""
    if stage is not None:
        partition, _, word = stage.partition("=")
        raise typer.Exit(_call(state, "health-stage", partition, word))
    raise typer.Exit(_call(state, "health-undo" if undo else "health-show", *(nodes or ())))


@importing.command("usage")
def import_usage(file: Annotated[str, typer.Argument(help="Output of sshare -alP.")],
                 state: StateOption = None) -> None:
    """Takes over the raw usage of every user association (sshare -alP)."""
    raise typer.Exit(_call(state, "import-usage", os.path.abspath(file)))


@importing.command("events")
def import_events(file: Annotated[str, typer.Argument(help="Output of sacctmgr -P show event.")],
                  state: StateOption = None) -> None:
    """Takes over when nodes were down and what the cluster consisted of (sacctmgr -P show event)."""
    raise typer.Exit(_call(state, "import-events", os.path.abspath(file)))


@importing.command("reservations")
def import_reservations(file: Annotated[str, typer.Argument(help="Output of sacctmgr -P show reservation.")],
                        assoc_ids: Annotated[str | None, typer.Option(
                            "--assoc-ids", help="What their numbers of associations are: ID|Account|User.")] = None,
                        state: StateOption = None) -> None:
    """Takes over reservations of the past (sacctmgr -P show reservation)."""
    raise typer.Exit(_call(state, "import-reservations", os.path.abspath(file), *(
        [os.path.abspath(assoc_ids)] if assoc_ids else [])))


@importing.command("history")
def import_history(file: Annotated[str, typer.Argument(help="Output of sacct -D -P.")],
                   suspended: Annotated[str | None, typer.Option(
                       "--suspended", help="When jobs were suspended: DBIndex|Start|End.")] = None,
                   state: StateOption = None) -> None:
    """Takes over jobs of the past with their steps (sacct -D -P)."""
    from slurmbridge import admin_files
    more = [os.path.abspath(suspended)] if suspended else []
    try:
        with admin_files.history_pieces(os.path.abspath(file)) as pieces:
            for piece in pieces:
                code = _call(state, "import-history", piece, *more)
                if code:
                    raise typer.Exit(code)
    except admin_files.FileError as error:
        fail(str(error))


@reporting.command("usage")
def report_usage(by: Annotated[str, typer.Option("--by", help="account | user | qos | partition | month")] = "account",
                 start: Annotated[str, typer.Option("--start", help="From when (default: yesterday).")] = "",
                 end: Annotated[str, typer.Option("--end", help="Until when.")] = "",
                 tres: Annotated[str, typer.Option("--tres", help="cpu,gres/gpu,… or all")] = "cpu",
                 form: Annotated[str, typer.Option("--format", help="table | csv | json | parquet")] = "table",
                 output: Annotated[str | None, typer.Option("-o", "--output", help="A file.")] = None,
                 state: StateOption = None) -> None:
    """TRES seconds by account, user, QOS, partition or month; their sums are sreport's."""
    path = os.path.abspath(output) if output else ""
    raise typer.Exit(_call(state, "report-usage", by, start, end, tres, form, path))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def translate(context: typer.Context, script: Annotated[str, typer.Argument(help="A batch script.")],
              job_id: Annotated[int, typer.Option("--job-id", help="The number its names shall have.")] = 1,
              slurm_conf: Annotated[Path | None, typer.Option("--slurm-conf", help="The site it is for.")] = None,
              config: Annotated[str | None, typer.Option("--config", help="slurmbridge.yaml.")] = None) -> None:
    """Prints the Kubernetes objects that a script would become; other options are sbatch's."""
    from slurmbridge import admin_manifests
    from slurmbridge.controller.config import ConfigError, read_config
    try:
        settings = read_config(config)
    except ConfigError as error:
        fail(str(error))
    raise typer.Exit(admin_manifests.print_manifests(script, tuple(context.args), job_id, slurm_conf
                                                     or settings.slurm_conf, settings.kubernetes))


@app.command()
def lint(file: Annotated[Path, typer.Argument(help="slurm.conf, or a batch script.")],
         slurm_conf: Annotated[Path | None, typer.Option("--slurm-conf", help="The site a script is for.")] = None,
         ) -> None:
    """Says what of a slurm.conf is not used, or what becomes of each directive of a script."""
    from slurmbridge import admin_files
    try:
        admin_files.print_lint(file, slurm_conf)
    except admin_files.FileError as error:
        fail(str(error))


def main() -> None:
    """Entry point of the ``slurmbridge`` command."""
    app()


if __name__ == "__main__":
    main()
