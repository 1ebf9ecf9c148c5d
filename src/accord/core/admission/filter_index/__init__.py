"""Advertised filters, a million of them: which cover, intersect or are covered by another one."""
