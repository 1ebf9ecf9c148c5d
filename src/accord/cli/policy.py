"""`accord policy …`: see, change and understand the policies of a node."""

from __future__ import annotations

import typer

from accord.cli.policies import changing, seeing

app = typer.Typer(
    no_args_is_help=True,
    help="Show, change and explain the policies of a node.",
)
app.command("list")(seeing.list_)
app.command("show")(seeing.show)
app.command("explain")(seeing.explain)
app.command("apply")(changing.apply)
app.command("put")(changing.put)
app.command("set")(changing.set_)
app.command("remove")(changing.remove)
app.command("strategy")(changing.strategy)
app.command("shaping")(changing.shaping)
app.command("limit")(changing.limit)
app.command("history")(seeing.history)
app.command("rollback")(changing.rollback)
app.command("check")(seeing.check)
app.command("presets")(seeing.presets)
