"""MPI programs over two nodes: one world, however they are started."""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import Programs, site_with_own_ids

from slurmbridge.slurm import mpi

HERE = Path(__file__).parent
ONE_WORLD = [f"task {rank} of 4: token {token}, sum 6" for rank, token in ((0, 3), (1, 1), (2, 2), (3, 3))]


def home_of(library: str) -> Path:
    folder = Path(sys.prefix) / "mpi" / library
    if not (folder / "bin" / "mpicc").exists() or shutil.which("cc") is None:
        pytest.skip(f"{library} or a C compiler is not here (tests/setup_mpi.sh)")
    return folder


@pytest.fixture(scope="module")
def ring() -> Iterator[Callable[[str], Path]]:
    """The compiled ring of a library, where everybody may read it."""
    folder = Path(tempfile.mkdtemp(prefix="ring-", dir="/tmp"))
    folder.chmod(0o755)
    made: dict[str, Path] = {}

    def build(library):
        if library not in made:
            made[library] = folder / f"ring-{library}"
            subprocess.run([home_of(library) / "bin" / "mpicc", "-o", made[library], HERE / "ring.c"], check=True)
        return made[library]
    yield build
    shutil.rmtree(folder, ignore_errors=True)


def said(lines):
    return sorted(line for line in lines if line.startswith("task "))


@pytest.mark.parametrize("version", ["1", "2"])
def test_srun_with_either_protocol(programs, ring, version):
    program = ring("mpich")
    lines = programs.run(f"PMI_VERSION={version} srun --mpi=pmi2 {program}")
    assert lines and said(lines) == ONE_WORLD, lines


@pytest.mark.parametrize("layout", ["-m cyclic", "-m plane=2", "-n4 -N2 -w n2,n1", "--exact -n4"])
def test_srun_with_tasks_in_any_order(programs, ring, layout):
    assert said(programs.run(f"srun --mpi=pmi2 {layout} {ring('mpich')}")) == ONE_WORLD


def test_the_environment_may_ask_for_it(programs, ring):
    assert said(programs.run(f"export SLURM_MPI_TYPE=pmi2; srun {ring('mpich')}")) == ONE_WORLD


def test_nobody_needs_to_ask_for_it(programs, ring):
    program = ring("mpich")
    assert said(programs.run(f"srun {program}")) == ONE_WORLD
    assert said(programs.run(f"cp {program} a.out; PATH=$PWD:$PATH srun a.out")) == ONE_WORLD


def test_never_as_many_worlds_as_tasks(programs, ring):
    if mpi.pmix_library() is not None:
        pytest.skip("this machine has a PMIx library")
    lines = programs.run(f"srun {ring('openmpi')}; echo rc $?")
    assert lines[-1] == "rc 1" and said(lines) == []
    assert lines[0] == ("srun: error: mpi/pmix: there is no PMIx library (libpmix.so.2) here; "
                        "mpirun of Open MPI needs none")
    assert said(programs.run(f"srun -N1 -n1 {ring('openmpi')}")) == ["task 0 of 1: token 0, sum 0"]


def test_components_are_one_world(programs, ring):
    program = ring("mpich")
    assert said(programs.run(f"srun --mpi=pmi2 -N1 -n1 {program} : -N1 -n3 {program}",
                             tasks_per_node=4)) == ["task 0 of 4: token 3, sum 6", *ONE_WORLD[1:]]


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec"])
def test_launchers_need_no_option(programs, ring, library, launcher):
    program = ring(library)
    assert said(programs.run(f"PATH={home_of(library)}/bin:$PATH; {launcher} {program}")) == ONE_WORLD
    steps = programs.site.ok("sacct", "-n", "-P", "-j", programs.job, "-o", "JobID,JobName,NNodes").splitlines()
    proxies = [step for step in steps if re.match(rf"{programs.job}\.\d+\|(hydra_pmi_proxy|prted)\|", step)]
    assert proxies, steps                     # it went through srun


def test_an_abort_ends_all_nodes(programs, ring):
    shared = set(Path("/dev/shm").glob("mpich_shm_*"))
    lines = programs.run(f"srun --mpi=pmi2 {ring('mpich')} abort; echo rc $?")
    for left in set(Path("/dev/shm").glob("mpich_shm_*")) - shared:
        left.unlink(missing_ok=True)
    assert lines[-1] == "rc 137"
    assert any(re.search(r"\*\*\* STEP \d+\.0 ON n1 CANCELLED AT \S+ DUE to SIGNAL Killed", line) for line in lines)


@pytest.fixture(scope="module")
def with_pmix() -> Iterator[Programs]:
    """A site whose PMIx library is the one that Open MPI's package brings."""
    library = home_of("openmpi") / "lib" / "openmpi" / "libpmix.so.2"
    made = site_with_own_ids("MpiDefault=pmix\n", {mpi.LIBRARY_VARIABLE: str(library)})
    made.up()
    yield Programs(made)
    made.remove()


@pytest.mark.parametrize("how", ["", "--mpi=pmix", "--mpi=pmix_v4 -m cyclic", "-n4 -w n2,n1"])
def test_pmix_makes_one_world(with_pmix, ring, how):
    lines = with_pmix.run(f"srun {how} {ring('openmpi')}")
    assert said(lines) == ONE_WORLD, lines


def test_pmix_within_one_node(with_pmix, ring):
    assert len(said(with_pmix.run(f"srun -N1 -n2 {ring('openmpi')}"))) == 2
    assert not list(Path("/tmp").glob(f"slurmbridge-pmix-{with_pmix.job}.*"))


def test_programs_without_mpi_are_not_disturbed(with_pmix):
    assert with_pmix.run("srun -n4 echo hello") == ["hello"] * 4


def test_pmix_abort_ends_all_nodes(with_pmix, ring):
    lines = with_pmix.run(f"srun {ring('openmpi')} abort; echo rc $?")
    assert lines[-1] == "rc 137" and said(lines) == []


def test_pmix_is_listed_where_it_is(with_pmix):
    assert with_pmix.site.ok("srun", "--mpi=list") == "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"


@pytest.mark.parametrize(("chosen", "default", "kind"), [
    (None, None, "none"), (None, "pmi2", "pmi2"), ("openmpi", "pmi2", "none"), ("pmix_v5", None, "pmix"),
    ("none", "pmix", "none"), ("pmix_x", None, "pmix_x")])
def test_names_of_types(chosen, default, kind):
    assert mpi.mpi_type(chosen, default) == kind


@pytest.mark.parametrize("kind", ["pmix", "pmix_v4", "bogus"])
def test_what_cannot_be_served_is_refused(programs, kind):
    if kind.startswith("pmix") and mpi.pmix_library() is not None:
        pytest.skip("this machine has a PMIx library")
    lines = programs.run(f"srun --mpi={kind} echo ran; echo rc $?")
    assert lines[-1] == "rc 1" and "ran" not in lines
    assert lines[-2] == f"srun: error: Invalid MPI type '{kind}', --mpi=list for acceptable types"


def test_the_list_of_types(programs):
    if mpi.pmix_library() is not None:
        pytest.skip("this machine has a PMIx library")
    done = programs.site.run("srun", "--mpi=list")
    assert (done.returncode, done.stdout) == (0, "MPI plugin types are...\n\tnone\n\tpmi2\n")
