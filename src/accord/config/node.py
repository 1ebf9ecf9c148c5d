"""Converts the configuration to the options of a node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from accord.config.net import admission_options, net_options
from accord.config.settings import Config
from accord.core.model.errors import InputError
from accord.runtime.node import ListenerSettings, Settings
from accord.runtime.pipeline import PipelineOptions
from accord.runtime.quality import QualityOptions
from accord.runtime.tls import server_context

DEMO_CHANNELS: Final = ("demo/#",)
DEMO_ATTRIBUTES: Final = {"load_mw": "float", "temperature_c": "float", "status": "string"}
DEMO_RETAIN_S: Final = 604_800


def node_settings(config: Config, *, has_demo: bool = False) -> Settings:
    """The options of a node; with a demonstration, its channels are kept if no others are."""
    keeps_demo = has_demo and _keeps_demo(config)
    return Settings(
        name=config.node.actual_name,
        data=config.node.directory,
        listeners=_listeners(config),
        origins=config.listen.origins,
        limits=config.limits,
        kept=DEMO_CHANNELS if keeps_demo else config.kept_channels,
        policies=Path(config.policies.file) if config.policies.file else None,
        journal=config.journal.options(),
        statistics_s=config.node.statistics_s,
        pipeline=_pipeline(config, keeps_demo=keeps_demo),
        net=net_options(config),
        quality=_quality(config),
        admission=admission_options(config.admission),
    )


def _quality(config: Config) -> QualityOptions:
    settings = config.quality
    return QualityOptions(
        strategy=settings.strategy,
        properties=Path(settings.properties) if settings.properties else None,
        reaction_timeout_ms=settings.reaction_timeout_ms,
    )


def _keeps_demo(config: Config) -> bool:
    """Whether the demonstration's events are kept, so that there is something to query."""
    has_something = bool(config.keep) or config.anonymous_rights is None
    return config.pipeline.enabled and bool(config.node.data) and not has_something


def _pipeline(config: Config, *, keeps_demo: bool) -> PipelineOptions | None:
    settings = config.pipeline
    if not settings.enabled:
        return None
    retain_s = settings.retain_s or (DEMO_RETAIN_S if keeps_demo else 0)
    return PipelineOptions(
        spark=settings.spark.master,
        spark_settings=settings.spark.settings,
        archive=settings.archive,
        interval_ms=settings.interval_ms,
        retain_ms=retain_s * 1_000 or None,
        large_bytes=settings.large_bytes,
        memory_mb=settings.memory_mb,
        timeout_s=settings.timeout_s,
        declared=DEMO_ATTRIBUTES if keeps_demo else config.declared,
        is_site=settings.site,
    )


def _listeners(config: Config) -> tuple[ListenerSettings, ...]:
    listen = config.listen
    tls = server_context(config.tls) if listen.mqtts or listen.websockets else None
    return (
        *(ListenerSettings(address) for address in listen.mqtt),
        *(ListenerSettings(address, tls=tls) for address in listen.mqtts),
        *(ListenerSettings(address, is_websocket=True) for address in listen.websocket),
        *(ListenerSettings(address, is_websocket=True, tls=tls) for address in listen.websockets),
    )


def prepare_directory(folder: Path | None) -> None:
    """Create the directory, so that an unusable one is an error before anything starts."""
    if folder is None:
        return
    problem = "permission denied"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        problem = "is a file"
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
    else:
        if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return
    raise InputError(
        str(folder), f"can't keep data there ({problem}); name a directory with --data"
    )
