"""Converts the admission settings to the node's admission options."""

from __future__ import annotations

from accord.config.settings import AdmissionSettings
from accord.core.admission.demand import Basis
from accord.core.admission.options import AdmissionOptions, Guarantee, Mode
from accord.core.broker.subscription_admission import guarantee_from
from accord.core.model.units import BANDWIDTHS_BPS, parse
from accord.runtime.admission import NodeAdmissionOptions


def admission_options(settings: AdmissionSettings) -> NodeAdmissionOptions:
    default = Guarantee(basis=Basis(settings.basis))
    return NodeAdmissionOptions(
        options=AdmissionOptions(
            mode=Mode(settings.mode),
            guarantee=guarantee_from(settings.guarantee, default),
            event_bytes=settings.event_bytes,
            queue_s=settings.queue_s,
            cpu_threshold=settings.cpu_threshold,
            burst_s=settings.burst_s,
        ),
        memory_bytes=settings.memory_bytes or None,
        link_bps=_bps(settings.link_bandwidth),
        links={name: _bps(text) for name, text in settings.links.items()},
    )


def _bps(text: str) -> int:
    """Bits per second; 0 if the setting is empty."""
    return parse(text, BANDWIDTHS_BPS) or 0
