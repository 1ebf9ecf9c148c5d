"""The `accord` command, also as `python -m accord`."""

import signal


def main() -> None:
    # Modules and commands take half a second to load: until then Ctrl-C just ends the process.
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from typer.main import get_command  # noqa: PLC0415

    from accord.cli.main import app  # noqa: PLC0415

    command = get_command(app)
    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
