"""What is wrong with a certificate of the site is told before a peer refuses it."""

from __future__ import annotations

import pytest
from msgspec import structs

from spritz.runtime.authority import CERTIFICATE_DAYS, Authority, misfit, own_keys
from spritz.runtime.tls import CONTROLLER, LOGIN, NODE, Machine

NOW = 1_800_000_000.0
SITE = Authority(b"\1" * 32)
N1 = Machine("site", NODE, "n1")


@pytest.mark.parametrize(
    ("shown", "is_wanted", "why"),
    [
        (N1, N1, ""),
        (N1, Machine("", NODE, "n1"), ""),
        (Machine("site", CONTROLLER, "ctl.site.example"), Machine("site", CONTROLLER, "ctl"), ""),
        (Machine("site", NODE, "n2"), N1, "the subject is /O=site/OU=node/CN=n2, and not /O=site/OU=node/CN=n1"),
        (Machine("site", LOGIN, "n1"), N1, "the subject is /O=site/OU=login/CN=n1, and not /O=site/OU=node/CN=n1"),
        (Machine("other", NODE, "n1"), N1, "the subject is /O=other/OU=node/CN=n1, and not /O=site/OU=node/CN=n1"),
    ],
)
def test_the_subject_names_the_machine(shown: Machine, is_wanted: Machine, why: str) -> None:
    assert misfit(own_keys([SITE], shown, NOW), is_wanted, NOW) == why


def test_old_and_mixed_up_files_are_told() -> None:
    keys = own_keys([SITE], N1, NOW)
    assert misfit(keys, N1, NOW + CERTIFICATE_DAYS * 86400 + 1).startswith("the certificate ended at 2027-")
    assert misfit(keys, N1, NOW - 40 * 86400).startswith("the certificate begins at 20")
    assert misfit(structs.replace(keys, key=own_keys([SITE], N1, NOW).key), N1, NOW) == (
        "the key is another certificate's"
    )
    assert "not a certificate and its key" in misfit(structs.replace(keys, certificate="text"), N1, NOW)
