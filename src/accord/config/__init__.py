"""Configuration: `load` reads and checks `accord.toml`, and returns a `Config`."""

from accord.config.errors import ConfigError, ConfigProblem
from accord.config.load import load, parse
from accord.config.settings import Config

__all__ = ["Config", "ConfigError", "ConfigProblem", "load", "parse"]
