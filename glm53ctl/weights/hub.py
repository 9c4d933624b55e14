"""The Hub as a source: what a commit consists of, where its files are, what its errors mean."""

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from glm53ctl.findings import Finding
from glm53ctl.weights.manifest import NAME, Entry, Manifest
from glm53ctl.weights.transfer import HttpRefusedError, Request, SameHostKeepsToken
from glm53ctl.weights.verdicts import judge_response

METADATA_SECONDS = 30.0
USER_AGENT = "glm53ctl"


class Source(Protocol):
    """Where the files of a set come from."""

    name: str
    opener: urllib.request.OpenerDirector

    def listing(self) -> Manifest:
        """Return what it has. Raises HttpRefusedError, or OSError of the network."""

    def request(self, path: str) -> Request:
        """Return how to ask for a file."""

    def judge(self, status: int, headers: Mapping[str, str]) -> Finding:
        """Say what an error of it means."""

    def drop_token(self) -> bool:
        """Go on without the secret that was refused; False when there is none to drop."""


@dataclass
class HubSource:
    """One repository of the Hub at one commit; `endpoint` is another Hub than the public one."""

    repo: str
    revision: str
    token: str | None = None
    fallback: str | None = None
    endpoint: str | None = None

    def __post_init__(self) -> None:
        self.name = self.repo
        self.opener = urllib.request.build_opener(SameHostKeepsToken)

    def listing(self) -> Manifest:
        """Return the files at the top of the repository, with sizes and the Hub's digests."""
        from huggingface_hub import HfApi  # half a second that no other command shall pay
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        try:
            api = HfApi(self.endpoint, token=self.token or False, library_name=USER_AGENT)
            info = api.model_info(
                self.repo, revision=self.revision, files_metadata=True, timeout=METADATA_SECONDS
            )
        except HfHubHTTPError as error:
            raise HttpRefusedError(
                error.response.status_code, dict(error.response.headers)
            ) from None
        except OfflineModeIsEnabled:
            raise OSError("HF_HUB_OFFLINE is set") from None
        except Exception as error:  # the client's own errors are no OSErrors; JSON may be none
            raise OSError(f"{type(error).__name__}: {error}") from None
        try:
            return Manifest(
                repo=self.repo,
                revision=self.revision,
                files=tuple(
                    Entry(
                        path=file.rfilename,
                        size=file.size or 0,
                        sha256=file.lfs.sha256 if file.lfs else None,
                        git_sha1=None if file.lfs else file.blob_id,
                    )
                    for file in info.siblings or ()
                    if wanted(file.rfilename)
                ),
            )
        except ValidationError:
            raise OSError("its answer is no manifest") from None

    def request(self, path: str) -> Request:
        """Return the address of a file; a redirect leads from there to the storage."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self.repo, path, revision=self.revision, endpoint=self.endpoint)
        secret = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return Request(url, {"User-Agent": USER_AGENT}, secret)

    def judge(self, status: int, headers: Mapping[str, str]) -> Finding:
        """Say what an error means."""
        return judge_response(
            status,
            headers,
            self.repo,
            self.revision,
            had_token=self.token is not None,
            fallback=self.fallback,
        )

    def drop_token(self) -> bool:
        """Go on without the token: a wrong one is worse than none."""
        had, self.token = self.token is not None, None
        return had


def wanted(path: str) -> bool:
    """Say whether a file of a repository is part of a set: those at the top, without dot files.

    Folders hold receipts, papers and scripts of those who made the checkpoint. A name with blanks
    or the like is a text for people, as the names of a checkpoint have none.
    """
    return NAME.fullmatch(path) is not None
