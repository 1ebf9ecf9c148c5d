"""The `accord` command, also as `python -m accord`."""

import signal


def main() -> None:
    # Modules take half a second to import: until then Ctrl-C just ends the process.
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from accord.cli.main import app  # noqa: PLC0415

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()


if __name__ == "__main__":
    main()
