"""Many workers under a few locks while processes, servers and the network fail at random; what their history proves.
In the manner of Jepsen (jepsen.io): nothing is judged while it happens, everything is written down and judged later."""
