"""Workspaces as requests use them: bound to one request, their refusals turned into problems."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from cadre.adapters.nats.objects.blobs import NatsBlobs
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.workspace_store import WorkspaceStore
from cadre.protocol.files import decode_data_url, is_blob_ref
from cadre.tools.files import File
from cadre.tools.workspace import FileChanged, NoSuchFile, WorkspaceError
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.runs import SENDER


@dataclass(frozen=True)
class Workspaces:
    """Opens the workspaces of trees."""

    files: NatsFileIndex
    blobs: NatsBlobs
    max_file_bytes: int

    def open(self, tree: str, request: str) -> WorkspaceStore:
        """The workspace of a tree. `request` makes a write the same one when the request comes again."""
        return WorkspaceStore(
            self.files, self.blobs, tree=tree, call=request, by=SENDER, most_bytes=self.max_file_bytes
        )

    async def put(self, tree: str, wanted: Mapping[str, str]) -> None:
        """Puts the files of a run that is about to begin where its agents find them. Raises a 422 problem."""
        workspace = self.open(tree, "task")
        with workspace_problems():
            for path, ref in wanted.items():
                data, media_type = await _content(workspace, path, ref)
                await workspace.write(path, File(data, name=path, media_type=media_type))


async def _content(workspace: WorkspaceStore, path: str, ref: str) -> tuple[bytes, str]:
    if is_blob_ref(ref):
        return await workspace.blob(ref), ""
    try:
        content = decode_data_url(ref)
    except ValueError as error:
        raise invalid(f"files.{path}: not base64: {error}") from error
    if content is None:
        raise invalid(f"files.{path}: send a `data:…;base64,…` URL or a `blob:<sha256>`")
    return content.data, content.media_type


@contextmanager
def workspace_problems() -> Iterator[None]:
    """Turns what a workspace refuses into a problem."""
    try:
        yield
    except NoSuchFile as error:
        raise Problem(404, "unknown-file", str(error)) from error
    except FileChanged as error:
        raise Problem(409, "file-changed", str(error)) from error
    except WorkspaceError as error:
        raise invalid(str(error)) from error
