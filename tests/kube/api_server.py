"""An API server of Kubernetes for tests: the real protocol over HTTP, and nothing behind it that runs a pod.

It can be had to fail as real ones do: connections that are cut, versions that are too old, requests that are refused.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from kube.object_store import Event, Object, Place, Refusal, Resource, Store

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class ApiServer:
    """Serves a Store. `token` is what requests must bear."""

    def __init__(self, folder: Path) -> None:
        self._certificate = _certificate(folder)
        self.store = Store()
        self.token = "t0"
        self.refusals: list[tuple[str, int]] = []
        """Requests to be refused: a piece of `METHOD path`, and the status."""
        self.requests: list[str] = []
        self.used: set[tuple[str, str, str]] = set()
        """Rights that requests needed: API group, resource with its subresource, and verb."""
        self._cut = asyncio.Event()
        app = Starlette(routes=[Route("/{path:path}", self._serve, methods=_METHODS)])
        config = uvicorn.Config(
            app,
            host="127.0.0.1",
            port=0,
            log_level="critical",
            lifespan="off",
            ssl_certfile=self._certificate,
            ssl_keyfile=self._certificate.with_suffix(".key"),
            timeout_graceful_shutdown=0,
        )
        self._server = uvicorn.Server(config)

    async def __aenter__(self) -> "ApiServer":
        self._task = asyncio.create_task(self._server.serve())
        while not self._server.started:  # noqa: ASYNC110  # uvicorn announces nothing
            await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self.cut()
        await self._task

    @property
    def url(self) -> str:
        [port] = [s.getsockname()[1] for server in self._server.servers for s in server.sockets]
        return f"https://127.0.0.1:{port}"

    def kubeconfig(self) -> str:
        """A file by which clients find the server."""
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "cadre"}}],
                "clusters": [
                    {
                        "name": "test",
                        "cluster": {"server": self.url, "certificate-authority": str(self._certificate)},
                    }
                ],
                "users": [{"name": "test", "user": {"token": self.token}}],
            }
        )

    def resource(self, kind: str) -> Resource:
        return next(one for one in self.store.resources if one.kind == kind)

    def place(self, resource: Resource, name: str, namespace: str = "cadre") -> Place:
        return Place(resource, namespace, name)

    def all(self, kind: str) -> list[Object]:
        return self.store.list(self.resource(kind))

    def find(self, kind: str, name: str, namespace: str = "cadre") -> Object | None:
        try:
            return self.store.get(self.resource(kind), namespace, name)
        except Refusal:
            return None

    async def set_status(self, kind: str, name: str, status: Object, namespace: str = "cadre") -> None:
        """Set a status as a controller of the cluster does."""
        resource = self.resource(kind)
        found = self.store.get(resource, namespace, name)
        given = {**found, "status": status}
        self.store.change(Place(resource, namespace, name), given, "kube-controller-manager", status=True, strict=False)
        await self.notify()

    async def until(self, holds: Any, what: str, seconds: float = 60) -> Any:
        """Return what `holds` returns once it is true: it is asked after every change."""

        async def wait() -> Any:
            async with self.store.changed:
                while not (value := holds()):
                    await self.store.changed.wait()
                return value

        try:
            return await asyncio.wait_for(wait(), seconds)
        except TimeoutError:
            raise AssertionError(f"not so after {seconds} s: {what}") from None

    async def notify(self) -> None:
        async with self.store.changed:
            self.store.changed.notify_all()

    async def cut(self) -> None:
        """Ends every watch in the middle."""
        self._cut.set()
        self._cut = asyncio.Event()
        await self.notify()

    async def _serve(self, request: Request) -> Response:
        line = f"{request.method} /{request.path_params['path']}"
        self.requests.append(line)
        try:
            if request.headers.get("authorization") != f"Bearer {self.token}":
                raise Refusal(401, "Unauthorized", "Unauthorized")
            for one in self.refusals:
                if one[0] in line:
                    self.refusals.remove(one)
                    raise Refusal(one[1], "InternalError", "as the test wants it")
            return await self._answer(request)
        except Refusal as refusal:
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
            body = {**status, "code": refusal.code, "reason": refusal.reason, "message": str(refusal)}
            return JSONResponse(body, refusal.code)
        finally:
            self.store.collect()
            await self.notify()

    async def _answer(self, request: Request) -> Response:
        parts = request.path_params["path"].strip("/").split("/")
        match parts:
            case ["version"]:
                return JSONResponse({"major": "1", "minor": "37", "gitVersion": "v1.37.0"})
            case ["api"]:
                return JSONResponse({"kind": "APIVersions", "versions": ["v1"]})
            case ["apis"]:
                return JSONResponse({"kind": "APIGroupList", "apiVersion": "v1", "groups": self._groups()})
            case ["openapi", "v3"]:
                paths = {
                    _openapi(one): {"serverRelativeURL": f"/openapi/v3/{_openapi(one)}"} for one in self.store.resources
                }
                return JSONResponse({"paths": paths})
            case ["openapi", "v3", *rest]:
                return JSONResponse(self._openapi("/".join(rest)))
            case ["api", "v1"]:
                return self._resources("", "v1")
            case ["apis", group, version]:
                return self._resources(group, version)
            case ["api", "v1", *rest]:
                return await self._object(request, "", "v1", rest)
            case ["apis", group, version, *rest]:
                return await self._object(request, group, version, rest)
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    def _groups(self) -> list[Object]:
        versions = {(one.group, one.version) for one in self.store.resources if one.group}
        return [
            {
                "name": group,
                "versions": [v := {"groupVersion": f"{group}/{version}", "version": version}],
                "preferredVersion": v,
            }
            for group, version in sorted(versions)
        ]

    def _openapi(self, place: str) -> Object:
        """As much as clients need to know that this server refuses unknown fields if it is asked to."""
        paths = {}
        for one in self.store.resources:
            if _openapi(one) == place:
                about = {"group": one.group, "version": one.version, "kind": one.kind}
                patch = {
                    "x-kubernetes-group-version-kind": about,
                    "parameters": [{"name": "fieldValidation", "in": "query"}],
                }
                where = "namespaces/{namespace}/" if one.namespaced else ""
                paths[f"/{place}/{where}{one.plural}/{{name}}"] = {"patch": patch}
        return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.37.0"}, "paths": paths}

    def _resources(self, group: str, version: str) -> Response:
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        mine = [one for one in self.store.resources if (one.group, one.version) == (group, version)]
        if not mine:
            raise Refusal(404, "NotFound", "no such group")
        names = [
            {"name": one.plural + sub, "kind": one.kind, "namespaced": one.namespaced, "singularName": one.kind.lower(),
             "verbs": verbs}
            for one in mine
            for sub in ("", "/status")
        ]  # fmt: skip
        scale = {"kind": "Scale", "group": "autoscaling", "version": "v1", "namespaced": True, "verbs": verbs}
        names += [{"name": f"{one.plural}/scale", **scale} for one in mine if one.is_scaled]
        about = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}".lstrip("/"),
        }
        return JSONResponse({**about, "resources": names})

    async def _object(self, request: Request, group: str, version: str, rest: list[str]) -> Response:
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, sub = (*rest, "", "")[:3]
        found = [r for r in self.store.resources if (r.group, r.version, r.plural) == (group, version, plural)]
        if not found:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        resource, query = found[0], request.query_params
        self.used |= {
            (group, f"{plural}/{sub}".rstrip("/"), verb)
            for verb in self._verbs(request, Place(resource, namespace, name))
        }
        manager = query.get("fieldManager") or request.headers.get("user-agent", "unknown").split("/")[0]
        strict = query.get("fieldValidation") == "Strict"
        match request.method:
            case "GET" if not name and query.get("watch") in ("1", "true"):
                return StreamingResponse(self._watch(resource, namespace, dict(query)), media_type="application/json")
            case "GET" if not name:
                return self._list(resource, namespace, dict(query))
            case "GET" if sub == "scale":
                return JSONResponse(_scale(self.store.get(resource, namespace, name)))
            case "GET":
                return JSONResponse(self._shown(self.store.get(resource, namespace, name)))
            case "POST":
                given = yaml.safe_load(await request.body())
                return JSONResponse(self.store.create(resource, namespace, given, manager, strict), 201)
            case "DELETE":
                body = yaml.safe_load(await request.body()) or {}
                uid = (body.get("preconditions") or {}).get("uid", "")
                return JSONResponse(self.store.delete(resource, namespace, name, uid))
        given = yaml.safe_load(await request.body())
        kind = request.headers["content-type"].split(";")[0]
        if kind == "application/apply-patch+yaml":
            force = query.get("force") == "true"
            made = self.store.apply(Place(resource, namespace, name), given, manager, force=force, strict=strict)
            return JSONResponse(made)
        if sub == "scale":
            return self._scaled(Place(resource, namespace, name), given, manager, strict=strict)
        if request.method == "PATCH":
            if kind != "application/merge-patch+json":
                raise Refusal(415, "UnsupportedMediaType", f"{kind} is not among the types of this server")
            given = merge_patch(self.store.get(resource, namespace, name), given)
        after = self.store.change(
            Place(resource, namespace, name), given, manager, status=sub == "status", strict=strict
        )
        return JSONResponse(after)

    def _scaled(self, place: Place, given: Object, manager: str, *, strict: bool) -> Response:
        before = self.store.get(*place)
        seen = (given.get("metadata") or {}).get("resourceVersion")
        if seen not in (None, before["metadata"]["resourceVersion"]):
            raise Refusal(409, "Conflict", f"{place.name} has been modified")
        wanted = merge_patch(_scale(before), given)["spec"]["replicas"]
        after = {**before, "spec": {**before["spec"], "replicas": wanted}}
        return JSONResponse(_scale(self.store.change(place, after, f"{manager}/scale", status=False, strict=strict)))

    def _verbs(self, request: Request, place: Place) -> list[str]:
        """Return what a role must allow for the request."""
        if request.method == "GET":
            if place.name:
                return ["get"]
            return ["watch" if request.query_params.get("watch") in ("1", "true") else "list"]
        is_there = self.find(place.resource.kind, place.name, place.namespace) is not None
        if request.method == "PATCH" and "apply" in request.headers["content-type"] and not is_there:
            return ["patch", "create"]
        return [{"POST": "create", "PUT": "update"}.get(request.method, request.method.lower())]

    def _list(self, resource: Resource, namespace: str, query: dict[str, str]) -> Response:
        items = [self._shown(one) for one in self.store.list(resource, namespace) if _selected(one, query)]
        about = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
        return JSONResponse({**about, "metadata": {"resourceVersion": str(self.store.version)}, "items": items})

    def _shown(self, found: Object) -> Object:
        """The object with the managers of its fields; these are kept of Deployments alone."""
        if found.get("kind") == "Deployment":
            found["metadata"]["managedFields"] = self.store.managed_fields(found)
        return found

    async def _watch(self, resource: Resource, namespace: str, query: dict[str, str]) -> AsyncIterator[bytes]:
        since, cut = int(query.get("resourceVersion") or self.store.version), self._cut
        if since < self.store.compacted:
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "code": 410,
                "reason": "Expired",
                "message": "too old",
            }
            yield _line("ERROR", status)
            return

        def new() -> list[Event]:
            return [one for one in self.store.events if one.version > since]

        while True:
            async with self.store.changed:
                while not (events := new()) and not cut.is_set():
                    await self.store.changed.wait()
            if cut.is_set():
                raise ConnectionResetError("cut")
            for event in events:
                since = event.version
                is_here = not namespace or event.found["metadata"].get("namespace") == namespace
                if event.resource.plural == resource.plural and is_here and _selected(event.found, query):
                    yield _line(event.type, event.found)


def _certificate(folder: Path) -> Path:
    """A certificate for this machine, which is its own authority: clients send no token without TLS."""
    file = folder / "server.crt"
    new = [
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=kubernetes",
    ]
    usage = [
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "keyUsage=critical,keyCertSign,digitalSignature",
    ]
    files = ["-keyout", str(file.with_suffix(".key")), "-out", str(file)]
    subprocess.run(["openssl", "req", *new, *usage, *files], check=True, capture_output=True, timeout=60)
    return file


def _openapi(resource: Resource) -> str:
    return f"apis/{resource.api_version}" if resource.group else "api/v1"


def merge_patch(value: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for key, one in patch.items():
        if one is None:
            found.pop(key, None)
        else:
            found[key] = merge_patch(found.get(key), one)
    return found


def _scale(found: Object) -> Object:
    """The subresource `scale` of an object."""
    about = {key: found["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    spec = {"replicas": found["spec"].get("replicas", 0)}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": about, "spec": spec, "status": spec}


def _line(what: str, found: Object) -> bytes:
    return json.dumps({"type": what, "object": found}).encode() + b"\n"


def _selected(found: Object, query: dict[str, str]) -> bool:
    labels = found["metadata"].get("labels") or {}
    wanted = [one.split("=", 1) for one in query.get("labelSelector", "").replace("==", "=").split(",") if one]
    fields = [one.split("=", 1) for one in query.get("fieldSelector", "").replace("==", "=").split(",") if one]
    return all(labels.get(key) == value for key, value in wanted) and all(
        found["metadata"].get(key.removeprefix("metadata.")) == value for key, value in fields
    )
