"""Accord: quality-of-service publish, subscribe and query.

The package itself imports nothing: Spark workers, command-line completion and clients all pay
for what stands here. Import from the module that has what you need, such as `accord.predicates`.
"""
