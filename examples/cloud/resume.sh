#!/bin/sh
# ResumeProgram: brings "cloud" nodes up. Called by slurmctld as SlurmUser with a hostlist such as cloud[1-4].
#
# Here a node is a slurmd process on this machine; where a real one is a virtual machine, ask the provider for it
# instead, and have its image start slurmd at boot. SLURM_CONF names the configuration; SLURM_RESUME_FILE a JSON file
# that says which jobs wait for which nodes.
# Programs are called with a short PATH: put the directory of slurmd and scontrol in the place of /usr/local/bin below.
set -u
PATH=${CLOUD_PATH:-/usr/local/bin}:$PATH
failed=0
for node in $(scontrol show hostnames "$1"); do
    # It detaches when it serves; a node that is up already is left alone.
    slurmd -N "$node" || failed=1
done
exit $failed
