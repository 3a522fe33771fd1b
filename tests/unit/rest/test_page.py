"""The documents for people."""

from __future__ import annotations

from spritz.rest.page import page


def test_an_operation_shows_its_parameters_body_and_answer() -> None:
    answer = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/v1_jobs"}}}}
    operation = {
        "summary": "get <jobs> & more",
        "parameters": [
            {"name": "a<b", "in": "query", "description": 'one "of" <these>'},
            {"name": "job_id", "in": "path", "required": True},
        ],
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/v1_request"}}}},
        "responses": {"200": answer},
    }
    text = page({"paths": {"/slurm/v1/jobs/": {"get": operation}, "/slurm/v2/jobs/": {"get": operation}}})
    assert text.index("<h2>v2</h2>") < text.index("<h2>v1</h2>"), "the newest first"
    assert "<b>get</b> <code>/slurm/v2/jobs/</code> get &lt;jobs&gt; &amp; more" in text
    assert "<td><code>a&lt;b</code></td><td>query</td><td></td><td>one &quot;of&quot; &lt;these&gt;</td>" in text
    assert "<td><code>job_id</code></td><td>path</td><td>required</td>" in text
    assert "v1_request" in text
    assert "v1_jobs" in text
