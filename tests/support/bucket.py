"""A small S3 client of the tests' own: Signature V4 with nothing but Python, so that a bucket is read independently of the code
under test. `Bucket.from_env(NAME)` takes S3_ENDPOINT, S3_REGION, S3_ACCESS_KEY and S3_SECRET_KEY (tests/support/*.sh env)."""
import datetime
import hashlib
import hmac
import http.client
import os
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as xml

EMPTY = hashlib.sha256(b"").hexdigest()


def escape(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-._~")


class BucketError(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status


class Bucket:
    """Safe to use from several threads; each has a connection of its own."""

    def __init__(self, endpoint, region, access, secret, name):
        self.where = urllib.parse.urlsplit(endpoint.rstrip('/'))
        self.region, self.access, self.secret, self.name = region, access, secret, name
        self.mine = threading.local()

    @classmethod
    def from_env(cls, name):
        env = os.environ
        return cls(env["S3_ENDPOINT"], env["S3_REGION"], env["S3_ACCESS_KEY"], env["S3_SECRET_KEY"], name)

    def sign(self, method, path, query, digest):
        stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        headers = {"host": self.where.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
        names = ";".join(sorted(headers))
        canonical = "\n".join([method, path, query, *(f"{n}:{headers[n]}" for n in sorted(headers)), "", names, digest])
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + self.secret).encode()
        for part in (stamp[:8], self.region, "s3", "aws4_request", text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
        )
        del headers["host"]
        return headers

    def once(self, method, path, query, body):
        headers = self.sign(method, path, query, hashlib.sha256(body).hexdigest() if body else EMPTY)
        if getattr(self.mine, "link", None) is None:
            self.mine.link = http.client.HTTPConnection(self.where.netloc, timeout=30)
        try:
            self.mine.link.request(method, path + ("?" + query if query else ""), body or None, headers)
            answer = self.mine.link.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        except (OSError, http.client.HTTPException):
            self.mine.link.close()
            self.mine.link = None
            raise

    def call(self, method, key="", query=None, body=b""):
        """Status, headers and body; tried again while the server is in trouble."""
        path = self.where.path + "/" + self.name + ("/" + escape(key, "/") if key else "")
        text = "&".join(f"{escape(k)}={escape(v)}" for k, v in sorted((query or {}).items()))
        for turn in range(8):
            try:
                status, headers, data = self.once(method, path, text, body)
                if status < 500 and status != 429:
                    return status, headers, data
                why = f"answered {status}"
            except (OSError, http.client.HTTPException) as problem:
                why = repr(problem)
            time.sleep(0.1 * 2**turn)
        raise BucketError(0, f"{method} {key}: {why}")

    def list(self, prefix):
        """Yields (key, size)."""
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        while True:
            status, _, data = self.call("GET", query=query)
            if status != 200:
                raise BucketError(status, f"cannot list {prefix}")
            tree = xml.fromstring(data)
            space = tree.tag[: tree.tag.index("}") + 1] if tree.tag.startswith("{") else ""
            for item in tree.iter(space + "Contents"):
                yield urllib.parse.unquote(item.findtext(space + "Key")), int(item.findtext(space + "Size"))
            token = tree.findtext(space + "NextContinuationToken")
            if tree.findtext(space + "IsTruncated") != "true" or not token:
                return
            query["continuation-token"] = token

    def get(self, key):
        """(body, metadata), or None where there is nothing."""
        status, headers, data = self.call("GET", key)
        if status == 404:
            return None
        if status != 200 or len(data) != int(headers.get("content-length", len(data))):
            raise BucketError(status, f"cannot read {key}")
        mark = "x-amz-meta-"
        return data, {k[len(mark) :]: v for k, v in headers.items() if k.startswith(mark)}

    def put(self, key, body):
        status, _, data = self.call("PUT", key, body=body)
        if status != 200:
            raise BucketError(status, f"cannot write {key}: {data[:200]!r}")


def main(args):
    """NAME get KEY | put KEY <BYTES | list PREFIX | sums PREFIX (sha256, tab, key)"""
    bucket, command, where = Bucket.from_env(args[0]), args[1], args[2]
    out = sys.stdout.buffer
    if command == "get":
        found = bucket.get(where)
        if found is None:
            return 1
        out.write(found[0])
    elif command == "put":
        bucket.put(where, sys.stdin.buffer.read())
    else:
        for key, _ in bucket.list(where):
            if command == "sums":
                out.write(hashlib.sha256(bucket.get(key)[0]).hexdigest().encode() + b"\t")
            out.write(os.fsencode(key) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
