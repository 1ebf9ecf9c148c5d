"""`python -m accord`."""

from accord.cli.main import app

app()
