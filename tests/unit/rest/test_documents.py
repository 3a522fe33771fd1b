"""Every operation of every published document is served, and nothing is served that no document has."""

from __future__ import annotations

from spritz.presentation.json.documents import VERSIONS, document
from spritz.presentation.json.documents import operations as operations_of
from spritz.rest import operations
from spritz.rest.operations.job_fields import KNOWN
from spritz.rest.routing import Router


def test_every_operation_of_every_document_has_a_handler() -> None:
    documented = {one.key for version in VERSIONS for one in operations_of(version)}
    assert documented == operations.load().keys()


def test_every_operation_is_found_by_its_path() -> None:
    everything = [one for version in VERSIONS for one in operations_of(version)]
    router = Router(everything)
    for one in everything:
        path = one.path.replace("{job_id}", "12").replace("{", "x").replace("}", "")
        found = router.find(path)
        assert found is not None, one.path
        assert found[0][one.method] == one


def test_slashes_make_no_difference_and_dots_do_not_climb() -> None:
    router = Router(operations_of("v0.0.42"))
    for path in ("/slurm/v0.0.42/jobs", "/slurm/v0.0.42/jobs/", "//slurm//v0.0.42/./jobs"):
        found = router.find(path)
        assert found is not None
        assert found[0]["GET"].key == "GET /slurm/jobs"
    for path in ("/slurm/v0.0.42/node/..", "/slurm/v0.0.41/jobs", "/slurm/v0.0.42/job/1/2", "/slurm/v0.0.42/node/%00"):
        assert router.find(path) is None


def test_every_field_of_a_job_is_known() -> None:
    """A field that a version adds is used, refused by name, or said to mean nothing: never lost."""
    for version in VERSIONS:
        fields = document(version)["components"]["schemas"][f"{version}_job_desc_msg"]["properties"]
        assert fields.keys() - KNOWN == set()
