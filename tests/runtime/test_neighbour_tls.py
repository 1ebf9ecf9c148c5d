from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.certificates import make_certificate

from accord.runtime.tls import TlsError, TlsFiles, link_contexts


def test_with_an_authority_of_the_nodes_both_sides_show_certificates(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    accepting, dialing = link_contexts(
        TlsFiles(certificate=str(certificate), key=str(key), client_ca=str(certificate))
    )
    assert accepting.verify_mode == dialing.verify_mode == ssl.CERT_REQUIRED
    assert not dialing.check_hostname, "the handshake of the link compares names"
    assert dialing.minimum_version == ssl.TLSVersion.TLSv1_2


def test_without_one_hosts_are_checked(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    accepting, dialing = link_contexts(TlsFiles(certificate=str(certificate), key=str(key)))
    assert accepting.verify_mode == ssl.CERT_NONE
    assert dialing.check_hostname
    assert dialing.verify_mode == ssl.CERT_REQUIRED


def test_certificate_and_key_may_share_a_file(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    _, dialing = link_contexts(TlsFiles(certificate=str(both), client_ca=str(certificate)))
    assert dialing.verify_mode == ssl.CERT_REQUIRED


def test_files_that_are_no_use(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    garbage = tmp_path / "garbage"
    garbage.write_text("nothing")
    for files in (
        TlsFiles(certificate=str(garbage), key=str(key)),
        TlsFiles(certificate=str(certificate), key=str(key), client_ca=str(garbage)),
    ):
        with pytest.raises(TlsError):
            link_contexts(files)
