"""distlock beside flock, etcdctl lock and python -c pass, in one run on one machine: ratios, not times.

One file a subject: start_up, hand_off, memory; what they compare is in peers. ``make bench`` runs run.py.
"""
