#!/bin/sh
# Open MPI's remote shell for the nodes of `gradlane run --link veth --inside`: runs a command in the network namespace
# of the node whose address is 10.77.1.N, under that name. mpirun calls it as HOST COMMAND...
host=$1
shift
space=$(echo "$GRADLANE_NAMESPACES" | cut -d, -f"${host##*.}")
exec ip netns exec "$space" unshare --uts sh -c "hostname $host; $*"
