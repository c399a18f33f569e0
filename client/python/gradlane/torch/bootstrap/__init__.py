"""Rendezvous of a job's ranks, and the start of daemons for them.

The module `store_group` lets ranks ask each other through PyTorch's store. `joining` checks what all ranks must agree
on before they are a group. `launch` starts daemons for a job that has none. `placement` plans these daemons, with the
same result on all ranks. `local_daemon` starts one daemon. `host_info` gives the addresses of this machine. `launchers`
reads the variables that mpirun and srun set for ranks.
"""
