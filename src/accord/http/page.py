"""The self-contained page at `/`: what this is, and where to look."""

from __future__ import annotations

from html import escape
from string import Template
from typing import Final

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}

_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$name · Accord</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 38rem; margin: 12vh auto; padding: 1rem; }
  h1 { font-size: 1.6rem; margin: 0; }
  dt { margin-top: 1rem; font-weight: 600; }
  dd { margin: 0; }
  .quiet { opacity: .7; }
</style>
</head>
<body>
<h1>$name</h1>
<p class="quiet">Accord $version · $state</p>
<p>A node that carries messages between MQTT clients: publish, subscribe with conditions on
content, and have what matters arrive in time.</p>
<dl>
  <dt><a href="api/v1/status">Status</a></dt><dd>What the node does now, as JSON.</dd>
  <dt><a href="api/v1/clients">Clients</a></dt><dd>Who is connected, or will come back.</dd>
  <dt><a href="metrics">Metrics</a></dt><dd>The same for Prometheus.</dd>
  <dt><a href="docs">API</a></dt><dd>Every operation, to read and try
    (<a href="openapi.json">OpenAPI</a>; the page takes its looks from the internet).</dd>
</dl>
</body>
</html>
""")


def landing_page(*, name: str, version: str, is_ready: bool) -> str:
    return _PAGE.substitute(
        name=escape(name),
        version=escape(version),
        state="serving clients" if is_ready else "not serving clients now",
    )
