"""`accord policy …`: view, change and explain the policies of a node."""

from __future__ import annotations

import typer

from accord.cli.policy import edit_commands, view_commands

app = typer.Typer(
    no_args_is_help=True,
    help="Show, change and explain the policies of a node.",
)
app.command("list")(view_commands.list_)
app.command("show")(view_commands.show)
app.command("explain")(view_commands.explain)
app.command("apply")(edit_commands.apply)
app.command("put")(edit_commands.put)
app.command("set")(edit_commands.set_)
app.command("remove")(edit_commands.remove)
app.command("strategy")(edit_commands.strategy)
app.command("shaping")(edit_commands.shaping)
app.command("limit")(edit_commands.limit)
app.command("history")(view_commands.history)
app.command("rollback")(edit_commands.rollback)
app.command("check")(view_commands.check)
app.command("presets")(view_commands.presets)
