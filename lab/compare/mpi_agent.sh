#!/bin/sh
# Replaces the remote shell of Open MPI on nodes of `gradlane run --link veth --inside`. mpirun calls it as HOST
# COMMAND... HOST is the address 10.77.1.N of a node. The command runs in the node's network namespace, with HOST as its
# host name.
host=$1
shift
space=$(echo "$GRADLANE_NAMESPACES" | cut -d, -f"${host##*.}")
exec ip netns exec "$space" unshare --uts sh -c "hostname $host; $*"
