"""What all tests share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def every_report_keeps_to_the_schema():
    """With TORCHSCAN_CHECK_SCHEMA=1, hold every report that any test writes against the published schema.

    Off by default: it costs a few milliseconds per module call of a report.
    """
    if os.environ.get("TORCHSCAN_CHECK_SCHEMA") != "1":
        yield
        return
    import jsonschema

    from torchscan.report import wire
    from torchscan.report.json_schema import report_schema

    validator = jsonschema.Draft202012Validator(report_schema())
    original = wire.report_to_dict

    def checked(report):
        data = original(report)
        validator.validate(data)
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "report_to_dict", checked)
        yield
