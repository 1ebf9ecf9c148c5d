"""Table 2 of the paper: what an important channel gets of an overloaded processor or link."""
