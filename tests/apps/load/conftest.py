from tests.cli.conftest import dead_url, node

__all__ = ["dead_url", "node"]
