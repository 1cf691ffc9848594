"""A local stand-in for the Hugging Face Hub, for the real client: models, commits, files in LFS.

It answers the requests of `huggingface_hub` for uploading and fetching a folder, as the Hub's API describes them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_stand_in"
#: Files that the stand-in keeps in LFS, as the Hub keeps all large or binary ones.
_LARGE = (".safetensors", ".pt2")


class Hub:
    """Models of the stand-in; use it as a context manager, `address` is then its endpoint.

    `models[name][path]` is the content of a file; `asked` lists `METHOD path` of every request.

    Args:
        planted: files that every model has from its first commit on, as if another user had added them.
    """

    def __init__(self, planted=None):
        self.models, self.private, self.large, self.asked = {}, {}, {}, []
        self.planted = planted or {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()

    def commit(self, name):
        """Return a name for the state of a model, which changes with every file."""
        state = [(path, hashlib.sha1(content).hexdigest()) for path, content in sorted(self.models[name].items())]
        return hashlib.sha1(json.dumps(state).encode()).hexdigest()

    def environment(self, folder):
        """Return variables that point the client here; xet, the protocol of the Hub's own storage, is off."""
        return {
            "HF_ENDPOINT": self.address,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(folder),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
        }


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def reply(self, value=None, status=200, headers=None, content=None):
        body = content if content is not None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code, text):
        self.reply({"error": text}, status, {"X-Error-Code": code, "X-Error-Message": text})

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    @property
    def known(self):
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def do_POST(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"POST {path}")
        content = self.body()
        if path == "/api/validate-yaml":
            return self.reply({"errors": [], "warnings": []})
        if not self.known:
            return self.refuse(401, "", "Invalid username or password.")
        if path == "/api/repos/create":
            return self.create(json.loads(content))
        if path.endswith("/info/lfs/objects/batch"):
            uploads = [self.upload_of(thing) for thing in json.loads(content)["objects"]]
            return self.reply({"transfer": "basic", "objects": uploads},
                              headers={"Content-Type": "application/vnd.git-lfs+json"})  # fmt: skip
        owner, model, action = path.removeprefix("/api/models/").split("/")[:3]
        name = f"{owner}/{model}"
        if name not in self.hub.models:
            return self.refuse(404, "RepoNotFound", "Repository not found")
        if action == "preupload":
            modes = {True: "lfs", False: "regular"}
            files = [file["path"] for file in json.loads(content)["files"]]
            return self.reply({"files": [
                {"path": file, "shouldIgnore": False, "uploadMode": modes[file.endswith(_LARGE)]} for file in files
            ]})  # fmt: skip
        assert action == "commit", path
        return self.commit(name, content)

    def create(self, wanted):
        name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
        url = f"{self.hub.address}/{name}"
        if name in self.hub.models:
            return self.reply({"error": "You already created this model repo", "url": url}, 409)
        self.hub.models[name] = {}
        self.hub.private[name] = wanted.get("private") or wanted.get("visibility") == "private"
        return self.reply({"url": url, "name": name})

    def commit(self, name, content):
        files = self.hub.models[name]
        for item in map(json.loads, content.splitlines()):
            if item["key"] == "file":
                files[item["value"]["path"]] = base64.b64decode(item["value"]["content"])
            elif item["key"] == "lfsFile":
                files[item["value"]["path"]] = self.hub.large[item["value"]["oid"]]
        files.update(self.hub.planted)
        sha = self.hub.commit(name)
        return self.reply({"success": True, "commitOid": sha, "commitUrl": f"{self.hub.address}/{name}/commit/{sha}"})

    def upload_of(self, thing):
        return thing | {
            "authenticated": True,
            "actions": {"upload": {"href": f"{self.hub.address}/lfs/{thing['oid']}"}},
        }

    def do_PUT(self):
        oid = self.path.rpartition("/")[2]
        content = self.body()
        assert hashlib.sha256(content).hexdigest() == oid
        self.hub.large[oid] = content
        self.hub.asked.append(f"PUT {self.path}")
        self.reply({})

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        words = path.removeprefix("/api/models").strip("/").split("/")
        name = "/".join(words[:2])
        if name not in self.hub.models or (self.hub.private[name] and not self.known):
            return self.refuse(404 if self.known else 401, "RepoNotFound", "Repository not found")
        sha, files = self.hub.commit(name), self.hub.models[name]
        if path.startswith("/api/models/"):
            revision = words[3] if len(words) > 3 else "main"
            if revision not in ("main", sha):
                return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            if len(words) > 2 and words[2] == "tree":
                return self.reply([self.entry(path, content) for path, content in sorted(files.items())])
            return self.reply({
                "_id": "0", "id": name, "modelId": name, "sha": sha, "private": self.hub.private[name], "tags": [],
                "siblings": [{"rfilename": path} for path in sorted(files)],
            })  # fmt: skip
        revision, file = words[3], "/".join(words[4:])
        if file not in files:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        content = files[file]
        tag = hashlib.sha256(content).hexdigest()
        return self.reply(content=content, headers={
            "X-Repo-Commit": sha, "ETag": f'"{tag}"', "Content-Type": "application/octet-stream",
            "X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{tag}"', "Accept-Ranges": "bytes",
        })  # fmt: skip

    def entry(self, path, content):
        tag = hashlib.sha256(content).hexdigest()
        told = {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
        return told | ({"lfs": {"oid": tag, "size": len(content), "pointerSize": 130}} if path.endswith(_LARGE) else {})
