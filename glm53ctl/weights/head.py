"""The head as a source: what a worker pulls from, over the fabric."""

import hmac
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from glm53ctl.findings import Finding, Severity
from glm53ctl.weights.layout import WeightSet
from glm53ctl.weights.manifest import Manifest
from glm53ctl.weights.serve import SIGNATURE, key_of, sign
from glm53ctl.weights.transfer import HttpRefusedError, Request
from glm53ctl.weights.verdicts import judge_pair

METADATA_SECONDS = 10.0


@dataclass
class HeadSource:
    """The head's verified files of one set."""

    weight_set: WeightSet
    address: str
    port: int
    token: bytes

    def __post_init__(self) -> None:
        self.name = f"the head at {self.address}:{self.port}"
        # The fabric is a cable between two machines: no proxy of the environment stands in it.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def _request(self, path: str) -> Request:
        url = f"http://{self.address}:{self.port}/{path}"
        return Request(url, secret={"Authorization": f"Bearer {key_of(self.token)}"})

    def listing(self) -> Manifest:
        """Return the head's manifest, once every file of it is verified there."""
        request = self._request(self.weight_set.role)
        asked = urllib.request.Request(request.url, headers=dict(request.secret))  # noqa: S310
        try:
            with self.opener.open(asked, timeout=METADATA_SECONDS) as answer:
                body, signature = answer.read(), answer.headers.get(SIGNATURE, "")
        except urllib.error.HTTPError as error:
            with error:
                raise HttpRefusedError(error.code, dict(error.headers.items())) from None
        except urllib.error.URLError as error:
            raise OSError(f"no answer ({error.reason})") from None
        except TimeoutError:  # as such it would count as silence, which no stall clock judges here
            raise OSError(f"no answer for {METADATA_SECONDS:.0f} s") from None
        except http.client.HTTPException as error:
            raise OSError(f"no HTTP answer ({error!r})") from None
        if not hmac.compare_digest(signature, sign(self.token, body)):
            raise HttpRefusedError(401, {})
        try:
            said = json.loads(body)
            manifest = Manifest.model_validate(said["manifest"])
        except (ValueError, KeyError, ValidationError):
            raise OSError("its answer is no manifest") from None
        if manifest.revision != self.weight_set.revision:
            raise HttpRefusedError(409, {"revision": manifest.revision})
        lacking = {entry.path for entry in manifest.files} - set(said.get("ready", ()))
        if lacking:
            raise HttpRefusedError(503, {"lacking": str(len(lacking))})
        return manifest

    def request(self, path: str) -> Request:
        """Return how to ask for a file."""
        return self._request(f"{self.weight_set.role}/{self.weight_set.revision}/{path}")

    def judge(self, status: int, headers: Mapping[str, str]) -> Finding:
        """Say what an error of the head means."""
        if status == 409:
            revision = headers.get("revision", "")
            finding = judge_pair(self.weight_set.role, revision, self.weight_set.revision)
            if finding is not None:
                return finding
        if status == 401:
            return Finding(
                code="SYNC_DENIED",
                severity=Severity.FAIL,
                message=f"{self.name} does not accept this node's pair token.",
                fix="Put the same pair token on both nodes.",
            )
        if status in (404, 503):
            return Finding(
                code="SYNC_NOT_READY",
                severity=Severity.WARN,
                message=f"{self.name} does not have it verified yet.",
                fix="Wait, or look at `glm53ctl weights status` on the head.",
            )
        return Finding(
            code="FETCH_FAILED",
            severity=Severity.WARN,
            message=f"{self.name} answered {status}.",
            fix="The sync tries again.",
        )

    def drop_token(self) -> bool:
        """Nothing works without the token."""
        return False
