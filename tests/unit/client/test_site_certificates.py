"""Which certificates a daemon uses: the cluster's, or the site's own (TLSType=tls/s2n)."""

from __future__ import annotations

import os
from pathlib import Path

from spritz.client.joining.joining import lend_keys
from spritz.client.trust.membership import SiteCertificates, find_membership


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def site_of(conf: Path) -> SiteCertificates | None:
    membership = find_membership(str(conf))
    assert membership is not None
    return membership.site


def test_slurm_conf_decides_where_it_is_next_to_the_key(tmp_path: Path) -> None:
    written(tmp_path / "slurm.key", os.urandom(64))
    written(tmp_path / "ca_cert.pem", b"")
    conf = written(tmp_path / "slurm.conf", b"ClusterName=c\n")
    assert site_of(conf) is None
    conf.write_text("TLSType=tls/s2n\nTLSParameters=ca_cert_file=/site/ca.pem\n")
    site = site_of(conf)
    assert site is not None
    assert site.path("ca_cert_file") == "/site/ca.pem"
    assert site.path("slurmd_cert_file") == str(tmp_path / "slurmd_cert.pem")


def test_the_files_decide_where_the_controller_sends_slurm_conf(tmp_path: Path) -> None:
    """It has sent none yet, or one from before the site's TLSType changed: a daemon that believed that could never
    fetch another.
    """
    etc, fetched = tmp_path / "etc", tmp_path / "fetched"
    written(etc / "slurm.key", os.urandom(64))
    lend_keys(str(fetched), [str(etc)])
    conf = fetched / "slurm.conf"
    assert site_of(conf) is None
    authority = written(etc / "ca_cert.pem", b"")
    for text in ("", "ClusterName=c\n", "TLSType=tls/s2n\n"):
        if text:
            conf.write_text(text)
        site = site_of(conf)
        assert site is not None
        assert site.path("ca_cert_file") == str(authority)
        assert site.path("slurmd_cert_file") == str(etc / "slurmd_cert.pem")
    authority.unlink()
    assert site_of(conf) is None
