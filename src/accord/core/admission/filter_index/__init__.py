"""Index of up to millions of advertised filters: those covering, covered by or intersecting one."""
