"""Who the operator is to an API server: tokens that are renewed, and certificates of files or of the kubeconfig."""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
from pathlib import Path

import pytest
from lightkube.config.models import Cluster, NameValue, User, UserExec
from lightkube.core.exceptions import ConfigError

from spritz.http.transport import Answer
from spritz.k8s.admission import certificates
from spritz.k8s.api import Api
from spritz.k8s.credentials import Login, tls_of


def headers(user: User, *refused: bool) -> list[str]:
    async def ask() -> list[str]:
        login = Login(user)
        return [await login.header(refused=last) for last in refused]

    return asyncio.run(ask())


def plugin(script: str, version: str = "v1beta1") -> User:
    api = f"client.authentication.k8s.io/{version}"
    given = [NameValue("SAID", "one")]
    return User(exec=UserExec(apiVersion=api, command=sys.executable, args=["-c", script], env=given))


def test_a_token_of_a_file_is_read_again_when_it_was_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")

    async def ask() -> list[str]:
        login = Login(User(token="old", token_file=str(file)))
        first = await login.header()
        file.write_text("second")
        return [first, await login.header(), await login.header(refused=True)]

    assert asyncio.run(ask()) == ["Bearer first", "Bearer first", "Bearer second"]
    file.unlink()
    with pytest.raises(ConfigError, match="token not found"):
        headers(User(token_file=str(file)), False)


def test_a_plugin_is_run_once_and_again_when_its_token_was_refused(tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = (
        f"import os; open({str(count)!r}, 'a').write('x'); n = os.path.getsize({str(count)!r});"
        'print(\'{"status": {"token": "%s-%d"}}\' % (os.environ[\'SAID\'], n))'
    )
    assert headers(plugin(script), False, False, True) == ["Bearer one-1", "Bearer one-1", "Bearer one-2"]


@pytest.mark.parametrize(
    ("user", "words"),
    [
        (plugin("import sys; sys.exit('no login')"), "returned 1: no login"),
        (plugin("print('{}')"), "cannot be read"),
        (plugin("", "v9"), "v9 not implemented"),
        (User(exec=UserExec("client.authentication.k8s.io/v1beta1", "/no/such/plugin")), "No such file"),
    ],
)
def test_a_plugin_that_gives_no_token_is_an_error_in_words(user: User, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        headers(user, False)


def test_other_users_have_a_header_that_stays_or_none() -> None:
    assert headers(User(token="t"), False, True) == ["Bearer t", "Bearer t"]
    assert headers(User(username="u", password="p"), False) == [f"Basic {base64.b64encode(b'u:p').decode()}"]
    assert headers(User(), False) == [""]
    with pytest.raises(ConfigError, match="auth-provider"):
        Login(User(auth_provider={"name": "gcp"}))


def test_the_api_servers_refusal_renews_a_token_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        f"users: [{{name: u, user: {{tokenFile: {file}}}}}]\n"
    )
    sent: list[str] = []

    async def ask() -> int:
        async with Api.connect(kubeconfig) as api:

            async def send(*_: object, headers: dict[str, str], **__: object) -> Answer:
                sent.append(headers["Authorization"])
                file.write_text("new")
                return Answer(401 if sent[-1] == "Bearer old" else 200, {}, b"")

            api.http.send = send  # type: ignore[assignment]  # in the server's place
            return (await api.exchange("GET", "api")).status

    assert asyncio.run(ask()) == 200
    assert sent == ["Bearer old", "Bearer new"]


def test_certificates_are_of_files_or_of_the_kubeconfig(tmp_path: Path) -> None:
    files = certificates.current({}, ["localhost"], 1.8e9)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)

    def told(name: str) -> str:
        return base64.b64encode(files[name]).decode()

    authority, certificate, key = certificates.AUTHORITY, certificates.CERTIFICATE, certificates.KEY
    of_files = Cluster(certificate_auth=authority), User(client_cert=certificate, client_key=key)
    inside = (
        Cluster(certificate_auth_data=told(authority)),
        User(client_cert_data=told(certificate), client_key_data=told(key)),
    )
    for cluster, user in (of_files, inside):
        context = tls_of(cluster, user, tmp_path.joinpath)
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1
    assert tls_of(Cluster(insecure=True), User(), tmp_path.joinpath).verify_mode is ssl.CERT_NONE
    with pytest.raises(ConfigError, match="base64"):
        tls_of(Cluster(certificate_auth_data="abc"), User(), tmp_path.joinpath)
    with pytest.raises(OSError):
        tls_of(Cluster(certificate_auth="none"), User(), tmp_path.joinpath)
