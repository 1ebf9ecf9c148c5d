"""Terminals: tables from structs, amounts with units, lines of events, input that never blocks."""
