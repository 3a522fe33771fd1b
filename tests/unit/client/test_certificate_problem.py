"""What is said of a certificate that was refused."""

from __future__ import annotations

import ssl

import pytest

from spritz.client.errors import certificate_problem


@pytest.mark.parametrize(
    ("code", "message", "text"),
    [
        (9, "certificate is not yet valid", "certificate is not yet valid; is the clock of this machine right?"),
        (10, "certificate has expired", "certificate has expired; is the clock of this machine right?"),
        (18, "self-signed certificate", "self-signed certificate"),
    ],
)
def test_a_wrong_clock_is_named_where_it_may_be_the_cause(code: int, message: str, text: str) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code = code
    error.verify_message = message
    assert certificate_problem(error) == text
    assert certificate_problem(OSError("reset")) == ""
