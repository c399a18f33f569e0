"""Launchers that do not set what PyTorch reads: Open MPI's mpirun and Slurm's srun."""

from __future__ import annotations

import os
import re
import warnings
import zlib
from typing import Any, Mapping, NamedTuple

import torch.distributed as dist

from ... import errors

_FIRST_PORT, _PORTS = 20000, 12000  # range of MASTER_PORT: below the ports that kernels assign by themselves


class _Launcher(NamedTuple):
    """Names of a launcher's variables. job: variables that identify a job together, equal on all ranks; any may be
    unset."""

    name: str
    rank: str
    size: str
    local_rank: str
    job: tuple[str, ...]


# Only srun sets SLURM_STEP_NUM_TASKS. The script of an sbatch has SLURM_PROCID and SLURM_NTASKS too, but is no rank.
_LAUNCHERS = (
    _Launcher("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
              ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    _Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)


def environment() -> dict[str, str]:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in os.environ from the variables of mpirun or
    srun.

    Returns the variables that it has set. It sets none if RANK or WORLD_SIZE is set already, as under torchrun and
    gradlane run, or without mpirun and srun. It never changes one of the other three variables that is set already.
    Raises BadArgument if mpirun has started ranks on several machines and MASTER_ADDR is not set: mpirun gives no
    addresses. Warns if the launcher has set no variable that identifies the job. All such jobs then have the same
    MASTER_PORT.
    """
    told = _told(os.environ)
    os.environ.update(told)
    return told


def init(**options: Any) -> None:
    """Calls init_process_group("gradlane", **options) under any launcher, after environment().

    If `store`, or an `init_method` other than env://, says where ranks meet, it does not call environment(). The
    options must then have `rank` and `world_size`, too.
    """
    if options.get("store") is None and (options.get("init_method") or "env://").startswith("env://"):
        environment()
    dist.init_process_group("gradlane", **options)


# ---- Private


def _told(variables: Mapping[str, str]) -> dict[str, str]:
    if "RANK" in variables or "WORLD_SIZE" in variables:
        return {}
    launcher = next((it for it in _LAUNCHERS if it.rank in variables and it.size in variables), None)
    if launcher is None:
        return {}
    told = {"RANK": variables[launcher.rank], "WORLD_SIZE": variables[launcher.size]}
    if launcher.local_rank in variables:
        told["LOCAL_RANK"] = variables[launcher.local_rank]
    if "MASTER_ADDR" not in variables:
        told["MASTER_ADDR"] = _first_host(launcher, variables)
    job = ".".join(variables[name] for name in launcher.job if name in variables)
    if not job and "MASTER_PORT" not in variables:
        warnings.warn(f"gradlane: {launcher.name} has set none of {', '.join(launcher.job)}, so all its jobs would "
                      "have the same MASTER_PORT: set MASTER_PORT to another value for each job", stacklevel=3)
    told["MASTER_PORT"] = str(_FIRST_PORT + zlib.crc32(job.encode()) % _PORTS)
    return {name: value for name, value in told.items() if name not in variables}


def _first_host(launcher: _Launcher, variables: Mapping[str, str]) -> str:
    """Returns the host of rank 0. Raises BadArgument if the launcher does not give it."""
    if launcher.name == "mpirun":
        if variables.get("OMPI_COMM_WORLD_LOCAL_SIZE") == variables[launcher.size]:
            return "127.0.0.1"
        raise errors.bad_argument(
            "gradlane: mpirun has started ranks on several machines, but gives no addresses: name the host of rank 0, "
            "mpirun -x MASTER_ADDR=HOST ..."
        )
    if variables.get("SLURM_STEP_NUM_NODES") == "1":
        return "127.0.0.1"
    hosts = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST") or ""
    # "n[01-03,7],login2" gives "n01": the first number of each bracket, up to the first comma outside brackets.
    first = re.sub(r"\[([^],-]*)[^]]*\]", r"\1", hosts).split(",", maxsplit=1)[0]
    if not first:
        raise errors.bad_argument("gradlane: srun has set no SLURM_STEP_NODELIST: set MASTER_ADDR to rank 0's host")
    return first
