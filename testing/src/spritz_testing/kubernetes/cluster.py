"""The verbs on the objects of the fake cluster (`store`), without HTTP: create, update, patch, apply, delete.

Source: Kubernetes API concepts and conventions; the messages are Kubernetes' own.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from spritz.runtime.clock import Clock, SystemClock
from spritz.runtime.randomness import SystemRandomness
from spritz_testing.kubernetes import admission, errors, managed, patches, strategies
from spritz_testing.kubernetes.access import ADMIN, Rules, Tokens, User
from spritz_testing.kubernetes.errors import Cause, Object, Refusal, bad_request
from spritz_testing.kubernetes.initial import initial_objects
from spritz_testing.kubernetes.kinds import Kind
from spritz_testing.kubernetes.schema import drop_nulls, prune, set_defaults, validate
from spritz_testing.kubernetes.store import Store
from spritz_testing.kubernetes.watching import Name, Stored

#: What keeps a definition until the objects of its kind have gone.
DEFINITION_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"

_randomness = SystemRandomness()

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
#: Kinds that must be updated with a resource version.
_CONDITIONAL: Final = frozenset({"leases", "events"})
#: Attempts at a write while others change the object at the same time.
_PATCH_ATTEMPTS: Final = 5


class Request:
    """Parameters of all writes: user, field manager, and whether it is a dry run."""

    __slots__ = ("dry_run", "field_validation", "manager", "user", "warnings")

    def __init__(
        self,
        user: User = ADMIN,
        manager: str = "spritz-testing",
        *,
        dry_run: bool = False,
        field_validation: str = "Warn",
    ) -> None:
        self.user = user
        self.manager = manager
        self.dry_run = dry_run
        self.field_validation = field_validation
        self.warnings: list[str] = []


#: Makes the new object from the present one. It may be called again after a concurrent write.
Change = Callable[[Object], Object]


class Cluster(Store):
    """The verbs on the objects, with defaults, validation, admission and managed fields.

    `secret` signs tokens of service accounts.
    """

    def __init__(self, *, history: int = 20_000, clock: Clock | None = None, secret: bytes = b"spritz") -> None:
        super().__init__(history=history, clock=clock or SystemClock())
        self._cluster_ips = 10
        self.rules = Rules(self._rbac_objects, lambda: self._rbac_version)
        self.tokens = Tokens(secret, self.now, self._find)
        #: (namespace, service) -> base URL of a webhook that is named by its Service
        self.services: dict[tuple[str, str], str] = {}
        self.webhooks = admission.Webhooks(self.among, self._find, self.services)
        for obj in initial_objects():
            self.put(obj)

    def _rbac_objects(self, plural: str) -> Iterable[Object]:
        return [stored.obj for stored in self._stores["rbac.authorization.k8s.io", plural].values()]

    # Create

    async def create(self, kind: Kind, namespace: str, obj: Object, request: Request | None = None) -> Object:
        """Create the object; returns it as stored. Raises Refusal. The store keeps a copy of `obj`."""
        request = request or Request()
        obj = copy.deepcopy(obj)
        metadata = self._incoming(kind, namespace, obj)
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        self._check_fields(kind, obj, request)
        if not metadata.get("name"):
            prefix = metadata.get("generateName")
            if not prefix:
                text = "name or generateName is required"
                raise errors.invalid_object(kind.kind, kind.group, "", [errors.required("metadata.name", text)])
            metadata["name"] = self._generated(kind, namespace, prefix[:58])
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
            metadata.pop(field, None)
        metadata["uid"] = admission.new_uid()
        metadata["creationTimestamp"] = self.timestamp()
        if kind.generation:
            metadata["generation"] = 1
        else:
            metadata.pop("generation", None)
        self._check_namespace(kind, namespace, metadata["name"])
        self._defaults(kind, obj)
        if kind.custom:
            if kind.has_status:
                obj.pop("status", None)
        else:
            strategies.prepare_create(kind, obj)
            self._allocate(kind, obj)
        if kind.plural == "pods" and not kind.group:
            admission.admit_pod(obj, self._find, self.among)
        obj = await self._mutated(kind, "CREATE", "", obj, None, request)
        self._validate(kind, obj, None)
        await self._check_webhooks(kind, "CREATE", "", obj, None, request)
        name = (namespace, obj["metadata"]["name"])
        if name in self._stores[kind.key]:
            raise errors.already_exists(kind.plural, kind.group, name[1])
        if kind.namespaced:
            admission.check_quota(kind, obj, self.among)
        if not obj["metadata"].get("managedFields"):  # an apply has set them
            self._note_update(kind, None, obj, request, "", "f:status" if kind.has_status else None)
        return obj if request.dry_run else self._commit(kind, name, None, obj)

    def _incoming(self, kind: Kind, namespace: str, obj: Object) -> Object:
        """Check that a request's object is of the resource that it is sent to; returns its metadata."""
        if not isinstance(obj, dict):
            raise bad_request("the body of the request is not an object")
        wanted, given = kind.api_version, obj.setdefault("apiVersion", kind.api_version)
        if given != wanted:
            raise bad_request(
                f"the API version in the data ({given}) does not match the expected API version ({wanted})"
            )
        if obj.setdefault("kind", kind.kind) != kind.kind:
            raise bad_request(
                f'{obj["kind"]} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f'no kind "{obj["kind"]}" is registered for version "{kind.api_version}"'
            )
        metadata = obj.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                "json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta"
            )
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        elif metadata.pop("namespace", ""):
            raise bad_request("the namespace of the object must be empty: the resource is cluster scoped")
        return metadata

    def _check_fields(self, kind: Kind, obj: Object, request: Request) -> None:
        """Check types like Kubernetes' decoder; drop unknown fields, with an error or a warning if requested."""
        drop_nulls(obj, kind.schema)
        unknown: list[str] = []
        prune(obj, kind.schema, "", unknown)
        if unknown and request.field_validation == "Strict":
            listed = ", ".join(f'unknown field "{field}"' for field in unknown)
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {listed}"
            )
        if request.field_validation == "Warn":
            request.warnings += [f'unknown field "{field}"' for field in unknown]
        if (wrong := _mistyped(kind, obj)) is not None:
            found = wrong.text.rsplit('"', 2)[1]
            text = f"json: cannot unmarshal {found} into Go struct field {kind.kind}.{wrong.field}"
            raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {text}')

    def _defaults(self, kind: Kind, obj: Object) -> None:
        if kind.custom:
            set_defaults(obj, kind.schema)
        else:
            strategies.set_defaults(kind, obj)

    def _validate(self, kind: Kind, obj: Object, old: Object | None) -> None:
        """Raises Refusal (422) with all errors."""
        causes = strategies.metadata_errors(kind, obj)
        validate(obj, kind.schema, "", causes, old)
        if not kind.custom and not causes:
            causes += strategies.validate(kind, obj)
            if old is not None:
                causes += strategies.validate_update(kind, obj, old)
        if causes:
            raise errors.invalid_object(kind.kind, kind.group, obj["metadata"].get("name", ""), causes)

    def _generated(self, kind: Kind, namespace: str, prefix: str) -> str:
        while True:
            ending = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in _randomness.token(5))
            if (namespace, prefix + ending) not in self._stores[kind.key]:
                return prefix + ending

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        namespace_object = self._find("namespaces", "", namespace)
        if namespace_object is None:
            raise errors.not_found("namespaces", "", namespace)
        if namespace_object["metadata"].get("deletionTimestamp"):
            text = f"unable to create new content in namespace {namespace} because it is being terminated"
            refusal = errors.forbidden(kind.plural, kind.group, name, text)
            refusal.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise refusal

    def _allocate(self, kind: Kind, obj: Object) -> None:
        if kind.plural == "services" and obj["spec"].get("type") != "ExternalName":
            spec = obj["spec"]
            if not spec.get("clusterIP"):
                self._cluster_ips += 1
                spec["clusterIP"] = f"10.96.{self._cluster_ips // 250}.{self._cluster_ips % 250 + 1}"
            spec["clusterIPs"] = [spec["clusterIP"]]
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")

    # Update

    async def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Change,
        request: Request | None = None,
        *,
        subresource: str = "",
        patched: bool = False,
        applied: bool = False,
    ) -> Object:
        """Replace the object by the result of `change`; returns it as stored. Raises Refusal.

        A resource version in the new object must be the present version. `patched`: `change` is a patch. `applied`: its
        managed fields are set already.
        """
        request = request or Request()
        for _attempt in range(_PATCH_ATTEMPTS):
            old = self.stored(kind, namespace, name)
            new = copy.deepcopy(change(copy.deepcopy(old.obj)))
            self._check_identity(kind, namespace, name, new, old.obj, patched=patched)
            self._check_fields(kind, new, request)
            self._keep(kind, new, old.obj, subresource)
            self._defaults(kind, new)
            new = await self._mutated(kind, "UPDATE", subresource, new, old.obj, request)
            _check_finalizers(kind, name, new, old.obj)
            self._validate(kind, new, old.obj)
            if kind.generation and any(
                new.get(part) != old.obj.get(part)
                for part in (new.keys() | old.obj.keys()) - {"metadata", "status", "apiVersion", "kind"}
            ):
                new["metadata"]["generation"] = old.obj["metadata"].get("generation", 0) + 1
            await self._check_webhooks(kind, "UPDATE", subresource, new, old.obj, request)
            if self._stores[kind.key].get((namespace, name)) is not old:
                continue  # the object changed during the call of a webhook
            if not applied:
                drop = None if subresource == "status" else "f:status" if kind.has_status else None
                self._note_update(kind, old.obj, new, request, subresource, drop)
            if _same(new, old.obj):
                return old.obj
            if request.dry_run:
                return new
            return self._replace(kind, (namespace, name), old, new)
        raise errors.conflict(kind.plural, kind.group, name, errors.MODIFIED)

    def _check_identity(
        self, kind: Kind, namespace: str, name: str, new: Object, old: Object, *, patched: bool
    ) -> None:
        """Raises Refusal if the new object has another name or uid, or is made from an older version."""
        metadata, before = self._incoming(kind, namespace, new), old["metadata"]
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        if not metadata.get("resourceVersion"):
            if kind.custom or kind.plural in _CONDITIONAL:
                text = "Invalid value: 0: must be specified for an update"
                cause = Cause("metadata.resourceVersion", "FieldValueInvalid", text)
                raise errors.invalid_object(kind.kind, kind.group, name, [cause])
        elif metadata["resourceVersion"] != before["resourceVersion"]:
            raise errors.conflict(kind.plural, kind.group, name, errors.MODIFIED)
        if metadata.get("uid") and metadata["uid"] != before["uid"]:
            if patched:  # a PUT's uid is a precondition, a patch's a change
                cause = errors.invalid("metadata.uid", metadata["uid"], "field is immutable")
                raise errors.invalid_object(kind.kind, kind.group, name, [cause])
            text = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {before['uid']}"
            raise errors.conflict(kind.plural, kind.group, name, text)

    def _replace(self, kind: Kind, name: Name, old: Stored, new: Object) -> Object:
        """Store the new object; or remove it, if it is being deleted and nothing keeps it. Returns it as stored."""
        metadata = new["metadata"]
        gone = metadata.get("deletionTimestamp") and not metadata.get("finalizers") and self._may_go(kind, new)
        return self._commit(kind, name, old, None, new) if gone else self._commit(kind, name, old, new)

    # Admission by webhooks, and managed fields

    async def _mutated(
        self, kind: Kind, operation: str, subresource: str, new: Object, old: Object | None, request: Request
    ) -> Object:
        """The object as mutating webhooks return it. Raises Refusal."""
        if not self.webhooks.any("mutatingwebhookconfigurations"):
            return new
        changed = await self.webhooks.mutate(
            kind, operation, subresource, new, old, request.user, dry_run=request.dry_run, warnings=request.warnings
        )
        assert changed is not None
        self._check_fields(kind, changed, Request(field_validation="Ignore"))
        self._defaults(kind, changed)
        return changed

    async def _check_webhooks(
        self, kind: Kind, operation: str, subresource: str, new: Object, old: Object | None, request: Request
    ) -> None:
        """Raises Refusal if a validating webhook denies the write."""
        if self.webhooks.any("validatingwebhookconfigurations"):
            await self.webhooks.validate(
                kind, operation, subresource, new, old, request.user, dry_run=request.dry_run, warnings=request.warnings
            )

    def _note_update(
        self, kind: Kind, old: Object | None, new: Object, request: Request, subresource: str, drop: str | None
    ) -> None:
        """Write the manager of the changed fields into the new object."""
        managed.note_update(
            old,
            new,
            kind.schema,
            manager=request.manager,
            subresource=subresource,
            now=self.timestamp(),
            drop=drop,
        )

    def _may_go(self, kind: Kind, obj: Object) -> bool:
        """Whether an object that is being deleted, and has no finalizers, can be removed."""
        if kind.plural == "namespaces" and not kind.group:
            return not obj["spec"].get("finalizers")
        return (obj["metadata"].get("deletionGracePeriodSeconds") or 0) == 0

    def _keep(self, kind: Kind, new: Object, old: Object, subresource: str) -> None:
        """Restore, in place, the fields that this request may not change."""
        metadata, before = new["metadata"], old["metadata"]
        for field in (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "generateName",
            "selfLink",
            "resourceVersion",
        ):
            if field in before:
                metadata[field] = before[field]
            else:
                metadata.pop(field, None)
        metadata.pop("selfLink", None)
        if subresource == "status":
            for part in list(new):
                if part not in ("apiVersion", "kind", "metadata", "status"):
                    del new[part]
            new.update(
                {
                    part: copy.deepcopy(value)
                    for part, value in old.items()
                    if part not in ("apiVersion", "kind", "metadata", "status")
                }
            )
            if kind.custom:
                fields = metadata.get("managedFields")
                new["metadata"] = copy.deepcopy(before)
                if fields is not None:
                    new["metadata"]["managedFields"] = fields
        elif kind.has_status and not subresource:
            if "status" in old:
                new["status"] = copy.deepcopy(old["status"])
            else:
                new.pop("status", None)

    # Patch and apply

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        content_type: str,
        request: Request | None = None,
        *,
        subresource: str = "",
        force: bool = False,
    ) -> tuple[Object, bool]:
        """(the object after the patch, whether the patch created it). Raises Refusal."""
        request = request or Request()
        if content_type == "application/apply-patch+yaml":
            return await self._apply(kind, namespace, name, patch, request, subresource, force)
        if content_type == "application/strategic-merge-patch+json" and kind.custom:
            raise Refusal(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )

        def change(obj: Object) -> Object:
            if content_type == "application/json-patch+json":
                result = patches.json_patch(obj, patch)
            elif content_type == "application/merge-patch+json":
                result = patches.merge(obj, patch)
            elif content_type == "application/strategic-merge-patch+json":
                result = patches.strategic(obj, patch, kind.schema)
            else:
                raise Refusal(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
            if not isinstance(result, dict):
                raise bad_request("the patch does not make an object")
            return result

        new = await self.update(kind, namespace, name, change, request, subresource=subresource, patched=True)
        return new, False

    async def _apply(
        self, kind: Kind, namespace: str, name: str, config: Object, request: Request, subresource: str, force: bool
    ) -> tuple[Object, bool]:
        if not isinstance(config, dict):
            raise bad_request("the body of an apply is not an object")
        config = copy.deepcopy(config)
        metadata = self._incoming(kind, namespace, config)
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        if metadata.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        expected = metadata.pop("resourceVersion", None)
        drop_nulls(config, kind.schema)
        unknown: list[str] = []
        prune(config, kind.schema, "", unknown)
        if unknown:
            text = "field not declared in schema"
            raise errors.no_typed_patch(kind.kind, kind.api_version, namespace, name, unknown[0], text)
        if (wrong := _mistyped(kind, config)) is not None:
            raise errors.no_typed_patch(kind.kind, kind.api_version, namespace, name, wrong.field, wrong.text)
        drop = "f:status" if kind.has_status and subresource != "status" else None
        if subresource == "status":
            config = {
                part: value for part, value in config.items() if part in ("apiVersion", "kind", "metadata", "status")
            }
        now = self.timestamp()
        if (namespace, name) not in self._stores[kind.key]:
            if expected or subresource:
                raise (
                    errors.not_found(kind.plural, kind.group, name)
                    if subresource
                    else errors.conflict(kind.plural, kind.group, name, errors.MODIFIED)
                )
            if metadata.get("uid"):
                text = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: "
                raise errors.conflict(kind.plural, kind.group, name, text)
            made = managed.apply(
                None, config, kind.schema, manager=request.manager, subresource="", now=now, force=True, drop=drop
            )
            entries = made["metadata"].pop("managedFields", None)
            return await self._create_applied(kind, namespace, made, entries, request), True

        def change(obj: Object) -> Object:
            if expected and expected != obj["metadata"]["resourceVersion"]:
                raise errors.conflict(kind.plural, kind.group, name, errors.MODIFIED)
            return managed.apply(
                obj,
                config,
                kind.schema,
                manager=request.manager,
                subresource=subresource,
                now=now,
                force=force,
                drop=drop,
            )

        return await self.update(kind, namespace, name, change, request, subresource=subresource, applied=True), False

    async def _create_applied(self, kind: Kind, namespace: str, obj: Object, entries: Any, request: Request) -> Object:
        """Create the object of an apply, whose fields only the apply owns."""
        hold = Request(request.user, request.manager, dry_run=True, field_validation="Ignore")
        made = await self.create(kind, namespace, obj, hold)
        request.warnings += hold.warnings
        made["metadata"].pop("managedFields", None)
        if entries:
            made["metadata"]["managedFields"] = entries
        if request.dry_run:
            return made
        name = (namespace, made["metadata"]["name"])
        if name in self._stores[kind.key]:
            raise errors.already_exists(kind.plural, kind.group, name[1])
        return self._commit(kind, name, None, made)

    # Delete

    async def delete(
        self, kind: Kind, namespace: str, name: str, options: Object | None = None, request: Request | None = None
    ) -> tuple[Object, bool]:
        """(the object, whether it was removed). Raises Refusal."""
        request, options = request or Request(), options or {}
        old = self.stored(kind, namespace, name)
        metadata = old.obj["metadata"]
        conditions = options.get("preconditions") or {}
        for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            if conditions.get(field) and conditions[field] != metadata[field]:
                text = (
                    f"Precondition failed: {label} in precondition: {conditions[field]}, "
                    f"{label} in object meta: {metadata[field]}"
                )
                raise errors.conflict(kind.plural, kind.group, name, text)
        if self.webhooks.any("validatingwebhookconfigurations"):
            await self.webhooks.validate(
                kind, "DELETE", "", None, old.obj, request.user, dry_run=request.dry_run, warnings=request.warnings
            )
            old = self.stored(kind, namespace, name)
            metadata = old.obj["metadata"]
        if request.dry_run:
            return old.obj, True
        if kind.plural == "namespaces" and not kind.group and name in ("default", "kube-system", "kube-public"):
            raise errors.forbidden("namespaces", "", name, "this namespace may not be deleted")
        finalizers = list(metadata.get("finalizers") or ())
        policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "")
        if policy == "Foreground" and "foregroundDeletion" not in finalizers:
            finalizers.append("foregroundDeletion")
        elif policy == "Orphan" and "orphan" not in finalizers:
            finalizers.append("orphan")
        if kind.plural == "customresourcedefinitions" and DEFINITION_FINALIZER not in finalizers:
            finalizers.append(DEFINITION_FINALIZER)  # until its objects have gone
        grace = self._grace(kind, old.obj, options)
        stays = bool(finalizers) or grace > 0 or (kind.plural == "namespaces" and not kind.group)
        if not stays:
            return self._commit(kind, (namespace, name), old, None, copy.deepcopy(old.obj)), True
        new = copy.deepcopy(old.obj)
        meta = new["metadata"]
        if finalizers:
            meta["finalizers"] = finalizers
        if not meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = self.timestamp(grace)
            meta["deletionGracePeriodSeconds"] = grace
            if "generation" in meta:
                meta["generation"] += 1
        elif grace < (meta.get("deletionGracePeriodSeconds") or 0):
            meta["deletionTimestamp"] = self.timestamp(grace)
            meta["deletionGracePeriodSeconds"] = grace
        if kind.plural == "namespaces" and not kind.group:
            new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
        if _same(new, old.obj):
            return old.obj, False
        return self._commit(kind, (namespace, name), old, new), False

    def _grace(self, kind: Kind, obj: Object, options: Object) -> int:
        """Grace period of a pod in seconds; 0 for other objects."""
        if kind.plural != "pods" or kind.group:
            return 0
        if not obj["spec"].get("nodeName") or (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        asked = options.get("gracePeriodSeconds")
        left = obj["metadata"].get("deletionGracePeriodSeconds")
        if asked is None:
            return int(left if left is not None else obj["spec"].get("terminationGracePeriodSeconds", 30))
        return int(asked) if left is None else min(int(asked), int(left))

    async def delete_collection(
        self, kind: Kind, namespace: str, labels: str, fields: str, options: Object | None, request: Request
    ) -> Sequence[Object]:
        _version, objects, _token, _more = self.list(kind, namespace, labels=labels, fields=fields)
        gone: list[Object] = []
        for stored in objects:
            metadata = stored.obj["metadata"]
            try:
                gone.append(
                    (await self.delete(kind, metadata.get("namespace", ""), metadata["name"], options, request))[0]
                )
            except Refusal as refusal:
                if refusal.code != 404:
                    raise
        return gone

    async def modify(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Change,
        manager: str,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """A write by the server itself, without admission: bindings, controllers, kubelets. Raises Refusal."""
        old = self.stored(kind, namespace, name)
        new = change(copy.deepcopy(old.obj))
        if kind.generation and new.get("spec") != old.obj.get("spec"):
            new["metadata"]["generation"] = old.obj["metadata"].get("generation", 0) + 1
        managed.note_update(
            old.obj, new, kind.schema, manager=manager, subresource=subresource, now=self.timestamp(), drop=None
        )
        if _same(new, old.obj) or dry_run:
            return new
        return self._replace(kind, (namespace, name), old, new)

    # Initial objects

    def put(self, obj: Object) -> Object:
        """Store an object unchanged, without admission: for a test's initial state. Returns it as stored."""
        kind = self.kind_named(obj["apiVersion"], obj["kind"])
        if kind is None:
            raise ValueError(f"no such kind: {obj['apiVersion']} {obj['kind']}")
        obj = copy.deepcopy(obj)
        metadata = obj["metadata"]
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
        metadata.setdefault("uid", admission.new_uid())
        metadata.setdefault("creationTimestamp", self.timestamp())
        if kind.generation:
            metadata.setdefault("generation", 1)
        self._defaults(kind, obj)
        name = (metadata.get("namespace", ""), metadata["name"])
        return self._commit(kind, name, self._stores[kind.key].get(name), obj)


def _mistyped(kind: Kind, obj: Object) -> Cause | None:
    """The first field of a built-in object that has a value of another type."""
    causes: list[Cause] = []
    if not kind.custom:
        validate(obj, kind.schema, "", causes)
    return next((cause for cause in causes if cause.kind == "FieldValueTypeInvalid"), None)


def _check_finalizers(kind: Kind, name: str, new: Object, old: Object) -> None:
    """Raises Refusal if finalizers are added to an object that is being deleted."""
    before = old["metadata"].get("finalizers") or ()
    added = [finalizer for finalizer in new["metadata"].get("finalizers") or () if finalizer not in before]
    if added and old["metadata"].get("deletionTimestamp"):
        text = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers {json.dumps(added)}"
        )
        raise errors.invalid_object(kind.kind, kind.group, name, [errors.forbidden_field("metadata.finalizers", text)])


def _same(new: Object, old: Object) -> bool:
    """Whether a write changes nothing: then it makes no new version and no event."""
    left, right = dict(new["metadata"]), dict(old["metadata"])
    for metadata in (left, right):
        metadata.pop("resourceVersion", None)
        # A changed time of an entry does not count.
        metadata["managedFields"] = [
            {key: value for key, value in entry.items() if key != "time"}
            for entry in metadata.get("managedFields") or ()
        ]
    return left == right and {**new, "metadata": None} == {**old, "metadata": None}
