from __future__ import annotations

import pytest

from accord.core.links.handshake import DIALER, LISTENER, SharedKey, transcript_of

TRANSCRIPT = transcript_of(b"one greeting", b"another")


@pytest.mark.parametrize("secret", [b"", b"k", bytes(64), bytes(65), b"x" * 10_000])
def test_a_proof_fits_its_key_role_and_conversation_only(secret: bytes) -> None:
    key = SharedKey(secret)
    proof = key.proof(DIALER, TRANSCRIPT)
    assert key.is_proof(proof, DIALER, TRANSCRIPT)
    assert SharedKey(secret).is_proof(proof, DIALER, TRANSCRIPT)
    assert not key.is_proof(proof, LISTENER, TRANSCRIPT)
    assert not key.is_proof(proof, DIALER, transcript_of(b"another", b"one greeting"))
    assert not key.is_proof(proof, DIALER, transcript_of(b"one greetinga", b"nother"))
    assert not key.is_proof(proof[:-1], DIALER, TRANSCRIPT)
    assert not key.is_proof(b"", DIALER, TRANSCRIPT)
    assert not SharedKey(secret + b"\0").is_proof(proof, DIALER, TRANSCRIPT)


def test_each_direction_and_conversation_has_datagram_keys_of_its_own() -> None:
    key = SharedKey(b"k")
    made = [
        each.datagram_key(role, transcript)
        for each in (key, SharedKey(b"other"))
        for role in (DIALER, LISTENER)
        for transcript in (TRANSCRIPT, b"another")
    ]
    assert len({each.secret for each in made}) == len({each.id for each in made}) == 8
    again = key.datagram_key(DIALER, TRANSCRIPT)
    assert (again.id, again.secret) == (made[0].id, made[0].secret)


def test_secrets_are_not_shown() -> None:
    assert repr(SharedKey(b"secret")) == "SharedKey(…)"
    assert repr(SharedKey()) == "SharedKey()"
    key = SharedKey(b"secret").datagram_key(DIALER, TRANSCRIPT)
    assert repr(key) == f"DatagramKey({key.id.hex()})"
