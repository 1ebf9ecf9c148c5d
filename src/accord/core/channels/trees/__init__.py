"""Distribution trees that the events of channels follow."""
