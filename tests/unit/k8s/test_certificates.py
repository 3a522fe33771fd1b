"""Certificates of webhooks: kept while they serve, replaced where they do not."""

from __future__ import annotations

import pytest
from cryptography import x509

from spritz.k8s.admission.certificates import AUTHORITY, CERTIFICATE, current

NOW, DAY = 1_800_000_000.0, 86_400.0
PODS, CLUSTERS = "spritz-webhooks.ns.svc", "spritz-clusters.ns.svc"


def names_in(pem: bytes) -> list[str]:
    extensions = x509.load_pem_x509_certificate(pem).extensions
    return extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)


def test_a_certificate_is_replaced_when_there_are_more_names() -> None:
    """The operator was started again with --clusters. One with fewer names, of an upgrade, leaves it as it is."""
    first = current({}, [PODS], NOW)
    second = current(first, [PODS, CLUSTERS], NOW + 3600)
    assert names_in(second[CERTIFICATE]) == [PODS, CLUSTERS]
    assert second[AUTHORITY] == first[AUTHORITY], "which the API server trusts already"
    assert current(second, [PODS], NOW + 7200) == second


@pytest.mark.parametrize(("days", "kept"), [(1, True), (59, True), (61, False), (100, False)])
def test_a_certificate_is_replaced_in_time(days: int, kept: bool) -> None:
    first = current({}, [PODS], NOW)
    later = current(first, [PODS], NOW + days * DAY)
    assert (later == first) is kept
    assert later[AUTHORITY] == first[AUTHORITY]
