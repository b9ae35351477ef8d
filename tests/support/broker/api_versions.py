"""The versions of APIs that the brokers and controllers of a Kafka version support, as they state them in ApiVersions.

    python -m support.broker.api_versions

writes them to `tests/fixtures/api-versions/`, a file for each version of Kafka, from a broker of that version. `broker`
and `controller` have the first and the last version of each API by its key, `features` those of each feature.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from support.broker.broker import Broker
from support.broker.kafka_tools import IN_FRONT_OF
from support.serve.kio_requests import ask

FOLDER = Path(__file__).parents[2] / "fixtures" / "api-versions"
_API_VERSIONS = 18


def recorded(version: str) -> dict[str, Any]:
    """Return what is in the file of a version of Kafka."""
    content: dict[str, Any] = json.loads((FOLDER / f"{version}.json").read_text(encoding="utf-8"))
    return content


def stated(broker: Broker) -> dict[str, Any]:
    """Return what a running broker states, which is also the controller."""
    answers = {name: ask(address, _API_VERSIONS, 4) for name, address in broker.addresses.items()}
    apis = {
        name: {str(api["api_key"]): [api["min_version"], api["max_version"]] for api in answer["api_keys"]}
        for name, answer in answers.items()
    }
    features = {
        feature["name"]: [feature["min_version"], feature["max_version"]]
        for feature in answers["broker"]["supported_features"]
    }
    return apis | {"features": features}


def _text(content: dict[str, Any]) -> str:
    """Return the content as JSON with a line for each API and feature."""
    parts = []
    for name, ranges in content.items():
        lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(ranges[key])}" for key in ranges)
        parts.append(f"  {json.dumps(name)}: {{\n{lines}\n  }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for version in IN_FRONT_OF:
        with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), version=version, features=()) as broker:
            (FOLDER / f"{version}.json").write_text(_text(stated(broker)), encoding="utf-8")


if __name__ == "__main__":
    _main()
