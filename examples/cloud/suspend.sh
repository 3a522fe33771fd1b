#!/bin/sh
# SuspendProgram: takes "cloud" nodes down. Called by slurmctld as SlurmUser with a hostlist such as cloud[1-4].
#
# Where a real node is a virtual machine, have the provider delete or stop it instead.
set -u
PATH=${CLOUD_PATH:-/usr/local/bin}:$PATH
pid_file=$(scontrol show config | sed -n 's/^SlurmdPidFile *= *//p')
for node in $(scontrol show hostnames "$1"); do
    file=$(printf '%s' "$pid_file" | sed "s/%n/$node/g")
    if [ -s "$file" ]; then
        kill "$(cat "$file")" 2>/dev/null
    fi
done
exit 0
