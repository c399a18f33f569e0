"""How the ranks of a job find each other, and daemons for themselves.

store_group: ranks that ask each other through PyTorch's store. joining: what all ranks must agree on before they are a
group. launch: daemons for a job that has none, by placement, which decides alike on all ranks, and local_daemon, which
starts one. host_info: this machine's addresses. launchers: what mpirun and srun say of ranks.
"""
