"""Who may do what: roles, reviews, tokens of service accounts."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.contract.conftest import Kube, Play

RBAC = "rbac.authorization.k8s.io/v1"


def test_a_user_may_do_what_roles_say_and_no_more(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        user = {"Impersonate-User": "contract-user"}
        refused = await kube.refused(403, kube.ask("GET", "pods", headers=user))
        assert refused.reason == "Forbidden"
        assert 'User "contract-user" cannot list resource "pods"' in refused.message
        rules = [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get"]},
        ]
        await kube.make(
            f"{RBAC}:roles", {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "r"}, "rules": rules}
        )
        await kube.make(f"{RBAC}:rolebindings", {
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "contract-user"}],
        })  # fmt: skip
        await kube.until(lambda: kube.ask("GET", "pods", headers=user), "the role holds")
        await kube.refused(403, kube.ask("GET", "pods/p", headers=user))
        await kube.refused(403, kube.ask("GET", "secrets", headers=user))
        await kube.refused(404, kube.ask("GET", "secrets/mine", headers=user))
        await kube.refused(403, kube.ask("GET", "secrets/other", headers=user))
        await kube.refused(403, kube.ask("GET", "api/v1/namespaces/default/pods", headers=user))

        async def allowed(**attributes: str) -> bool:
            review: dict[str, Any] = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": "contract-user", "resourceAttributes": {"namespace": kube.namespace, **attributes}},
            }
            answer = await kube.make("apis/authorization.k8s.io/v1/subjectaccessreviews", review)
            return bool(answer["status"]["allowed"])

        assert await allowed(verb="list", resource="pods")
        assert not await allowed(verb="create", resource="pods", subresource="binding")

    play(scene)


def test_a_service_account_has_tokens(play: Play) -> None:
    async def scene(kube: Kube) -> None:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        token = (await kube.make("serviceaccounts/default/token", request))["status"]["token"]

        async def review(text: str) -> Any:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": text}}
            return (await kube.make("apis/authentication.k8s.io/v1/tokenreviews", body))["status"]

        found = await review(token)
        assert found["authenticated"] is True
        assert found["user"]["username"] == f"system:serviceaccount:{kube.namespace}:default"
        assert f"system:serviceaccounts:{kube.namespace}" in found["user"]["groups"]
        assert not (await review(token[:-8] + "AAAAAAAA")).get("authenticated")

    play(scene)
