"""A sum over all ranks by mpi4py, with Slurm's PMI."""

import os

from mpi4py import MPI

world = MPI.COMM_WORLD
assert world.allreduce(world.rank) == world.size * (world.size - 1) // 2
node = os.environ["SLURMD_NODENAME"]
os.write(1, f"process {world.rank} of {world.size} on {node}\n".encode())  # one write: lines stay whole
