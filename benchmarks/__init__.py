"""Speed of Accord beside naive evaluation and beside peers, on workloads from the literature."""
