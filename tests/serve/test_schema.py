"""Whatever its own OpenAPI lets somebody ask, and some of what it does not, is answered as that OpenAPI says."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import photos
from serving import Shelf, application, model, running

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = (
    "POST /predict",
    "POST /search",
    "GET /items/{item}/thumbnail",
    "GET /items/{item}/image",
    "GET /about",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
)


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, schemathesis.APIOperation]]:
    made = model()
    with running(application(made, Shelf(made, photos.photos(tmp_path_factory.mktemp("schema"))))) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        yield {each.ok().label: each.ok() for each in schema.get_all_operations()}


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.parametrize("mode", GenerationMode)
def test_is_answered_as_described(operations: dict[str, schemathesis.APIOperation], label: str, mode: GenerationMode) -> None:
    assert set(operations) == set(OPERATIONS)

    @given(case=operations[label].as_strategy(generation_mode=mode))
    @settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    try:
        check()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "what takes nothing cannot be asked wrongly"
