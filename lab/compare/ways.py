# ways.py - names and sizes of what scalability.py measures and scalability_page.py shows

AGGREGATOR, RING, DIRECT = "aggregator:0", "ring", "direct"
GBPS, RTT = 10, "50us"  # of simulated ports
MIB = 1024 * 1024
